//! Members come and go.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::broker::{PATIENCE, Topic, brokers};
use super::log::until_committed;
use super::member::{Member, Policy, ack};

/// Field case 001.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_during_rebalances_are_never_fatal_and_all_of_it_is_committed_in_the_end() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 4).await;
    let eager = || topic.source().commit_interval(Duration::from_millis(1));
    let mut first = Member::start(eager(), Policy::Settle).await;
    first
        .until("all partitions", |seen| seen.owned.len() == 4)
        .await;
    let writer = topic.clone();
    let mut writing = tokio::task::JoinSet::new();
    writing.spawn_blocking(move || {
        for part in 0..40 {
            for partition in 0..4 {
                writer.produce(partition, part * 20..(part + 1) * 20);
            }
        }
    });
    let mut second = Member::start(eager(), Policy::Settle).await;
    second.until("a part", |seen| !seen.owned.is_empty()).await;
    let mut third = Member::start(eager(), Policy::Settle).await;
    third.until("a part", |seen| !seen.owned.is_empty()).await;
    third.close().await;
    first
        .until("an even share", |seen| seen.owned.len() == 2)
        .await;
    second
        .until("an even share", |seen| seen.owned.len() == 2)
        .await;
    writing.join_next().await.unwrap().unwrap();

    for partition in 0..4 {
        until_committed(&topic, partition, 800).await;
    }
    first.close().await;
    second.close().await;
}

/// Field case 003.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_one_partition_refuses_settlements_of_that_one_alone() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 3).await;
    for partition in 0..3 {
        topic.produce(partition, 0..10);
    }
    let mut first = topic.join(Policy::Keep).await;
    first
        .until("all of it", |seen| seen.deliveries.len() == 30)
        .await;
    let mut second = topic.join(Policy::Keep).await;
    second
        .until("a partition", |seen| seen.owned.len() == 1)
        .await;
    let given = second.look(|seen| seen.partitions()[0]);
    let kept: Vec<i32> = (0..3).filter(|&partition| partition != given).collect();
    assert_eq!(first.look(super::member::Seen::partitions), kept);

    first.settle_all();

    for &partition in &kept {
        until_committed(&topic, partition, 10).await;
    }
    second
        .until("its records", |seen| seen.offsets(given).len() == 10)
        .await;
    first.close().await;
    assert!(matches!(topic.committed(given), None | Some(0)));
    second.settle_all();
    until_committed(&topic, given, 10).await;
    second.close().await;
}

/// Field case 006.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_pending_when_a_partition_left_does_not_hold_it_up_when_it_is_back() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 2).await;
    for partition in 0..2 {
        topic.produce(partition, 0..1000);
    }
    let mut first = topic.join(Policy::Keep).await;
    first
        .until("all of it", |seen| seen.deliveries.len() == 2000)
        .await;
    let mut second = topic.join(Policy::Keep).await;
    second
        .until("a partition", |seen| seen.owned.len() == 1)
        .await;
    second.close().await;
    first.policy(Policy::Settle);
    first.settle_all();
    first
        .until("both again", |seen| seen.owned.len() == 2)
        .await;
    for partition in 0..2 {
        until_committed(&topic, partition, 1000).await;
    }
    for partition in 0..2 {
        topic.produce(partition, 1000..1100);
        until_committed(&topic, partition, 1100).await;
    }
    first.close().await;
}

/// Field case 008, and contract clauses 2 and 5: work that outlived its revocation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_comes_after_the_revocation_moves_no_offset() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 2).await;
    for partition in 0..2 {
        topic.produce(partition, 0..100);
    }
    let drain = Duration::from_millis(300);
    let mut zombie = Member::start(topic.source().drain(drain), Policy::Hang).await;
    zombie
        .until("all of it", |seen| seen.deliveries.len() == 200)
        .await;

    let mut owner = topic.join(Policy::Keep).await;
    owner
        .until("a partition", |seen| seen.owned.len() == 1)
        .await;
    let moved = owner.look(|seen| seen.partitions()[0]);
    owner
        .until("its records", |seen| seen.offsets(moved).len() == 100)
        .await;
    owner.settle(owner.look(|seen| seen.deliveries[..10].iter().map(ack).collect::<Vec<_>>()));
    until_committed(&topic, moved, 10).await;
    zombie.look(|seen| assert_eq!(seen.revoked[0].1, drain));
    zombie.settle_all();
    until_committed(&topic, 1 - moved, 100).await;
    assert_eq!(topic.committed(moved), Some(10));

    zombie.answer_revocations();
    zombie.policy(Policy::Keep);
    owner.close().await;
    zombie
        .until("both again", |seen| seen.owned.len() == 2)
        .await;
    zombie.close().await;
    assert_eq!(topic.committed(moved), Some(10));
}

/// What is settled between the revocation and its answer is committed before the next owner reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_waits_for_running_work_and_commits_it() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 2).await;
    for partition in 0..2 {
        topic.produce(partition, 0..100);
    }
    // Nothing is committed in the background here but the first position.
    let slow = topic
        .source()
        .commit_interval(Duration::from_mins(5))
        .drain(PATIENCE);
    let mut first = Member::start(slow, Policy::Hang).await;
    first
        .until("all of it", |seen| seen.deliveries.len() == 200)
        .await;
    let mut second = topic.join(Policy::Keep).await;
    first
        .until("the revocation", |seen| !seen.revoked.is_empty())
        .await;
    first.settle_all();
    first.answer_revocations();
    second
        .until("a partition", |seen| seen.owned.len() == 1)
        .await;
    let moved = second.look(|seen| seen.partitions()[0]);
    assert_eq!(topic.committed(moved), Some(100));
    topic.produce(moved, 100..101);
    second
        .until("the next record", |seen| !seen.deliveries.is_empty())
        .await;
    assert_eq!(second.look(|seen| seen.offsets(moved)), [100]);
    first.close().await;
    second.close().await;
}

/// Field cases 012, 013 and 014.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_partition_that_comes_back_is_read_from_where_the_group_is() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 2).await;
    for partition in 0..2 {
        topic.produce(partition, 0..100);
    }
    let mut first = topic.join(Policy::Settle).await;
    first
        .until("all of it", |seen| seen.deliveries.len() == 200)
        .await;
    let paused = first.look(|seen| seen.owned.keys().copied().collect::<Vec<_>>());
    for &id in &paused {
        first.pause(id);
    }
    let mut second = topic.join(Policy::Settle).await;
    second
        .until("a partition", |seen| seen.owned.len() == 1)
        .await;
    let moved = second.look(|seen| seen.partitions()[0]);
    // Written only now: the first member has never seen these.
    topic.produce(moved, 100..500);
    second
        .until("what is new", |seen| {
            seen.offsets(moved).last() == Some(&499)
        })
        .await;
    // An id that is not its own any more means nothing.
    let gone = paused
        .iter()
        .find(|&&id| first.look(|seen| !seen.owned.contains_key(&id)));
    first.resume(*gone.unwrap());
    second.close().await;
    topic.produce(moved, 500..600);

    first
        .until("the partition", |seen| seen.owned.len() == 2)
        .await;
    let id = first.look(|seen| seen.assignment(moved)).unwrap();
    assert!(!paused.contains(&id));
    first
        .until("its records", |seen| {
            seen.offsets_of(id).last() == Some(&599)
        })
        .await;
    assert!(
        first
            .look(|seen| seen.offsets_of(id))
            .into_iter()
            .eq(500..600)
    );
    first.close().await;
}

/// Field case 009: a handler takes longer than the group's patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_settles_nothing_for_longer_than_the_poll_interval_keeps_its_partitions() {
    let Some(brokers) = brokers() else { return };
    let topic = Topic::create(&brokers, 2).await;
    topic.produce(0, 0..100);
    let hasty = topic
        .source()
        .set("max.poll.interval.ms", "1500")
        .set("session.timeout.ms", "1500");
    let mut member = Member::start(hasty, Policy::Keep).await;
    member
        .until("all of it", |seen| seen.deliveries.len() == 100)
        .await;
    let id = member.look(|seen| seen.assignment(0)).unwrap();
    member.pause(id);
    // Three poll intervals in which nothing must happen.
    tokio::time::sleep(Duration::from_millis(4500)).await;
    member.look(|seen| assert_eq!((seen.revoked.len(), seen.owned.len()), (0, 2)));
    member.resume(id);
    member.settle_all();
    until_committed(&topic, 0, 100).await;
    topic.produce(0, 100..101);
    member
        .until("the next record", |seen| seen.deliveries.len() == 101)
        .await;
    member.close().await;
}

/// Field case 010: the process was frozen for longer than the group's patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_frozen_loses_its_partitions_and_joins_again() {
    let Some(brokers) = brokers() else { return };
    if let Ok(names) = std::env::var(FROZEN) {
        return to_be_frozen(&brokers, &names).await;
    }
    let topic = Topic::create(&brokers, 2).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "a_process_that_was_frozen_loses_its_partitions",
            "--nocapture",
        ])
        .env(FROZEN, format!("{} {}", topic.name, topic.group))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut wait_for = |text: &str| {
        let line = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(text)));
        assert!(line.is_some(), "the child ended before it said: {text}");
    };
    wait_for("child: owns 2");
    let signal = |name: &str| {
        let pid = child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    let mut other = topic.join(Policy::Settle).await;
    let taken = other.until("both partitions", |seen| seen.owned.len() == 2);
    taken.await;
    signal("-CONT");

    wait_for("child: lost 2");
    wait_for("child: owns 1");
    other
        .until("one partition", |seen| seen.owned.len() == 1)
        .await;
    other.close().await;
    wait_for("child: owns 2");
    signal("-KILL");
    child.wait().unwrap();
}

const FROZEN: &str = "ONEFFECT_TEST_FROZEN_MEMBER";

#[allow(clippy::print_stdout, reason = "it is how the child tells its parent")]
async fn to_be_frozen(brokers: &str, names: &str) {
    let (name, group) = names.split_once(' ').unwrap();
    let topic = Topic {
        brokers: brokers.to_owned(),
        name: name.to_owned(),
        group: group.to_owned(),
    };
    let hasty = topic
        .source()
        .set("max.poll.interval.ms", "2000")
        .set("session.timeout.ms", "2000");
    let mut member = Member::start(hasty, Policy::Settle).await;
    let two = |member: &Member| println!("child: owns {}", member.look(|seen| seen.owned.len()));
    member.until("both", |seen| seen.owned.len() == 2).await;
    two(&member);
    member
        .until("loss", |seen| seen.connected == [true, false])
        .await;
    member
        .until("the revocation", |seen| !seen.revoked.is_empty())
        .await;
    member.look(|seen| {
        let (ids, deadline) = &seen.revoked[0];
        assert!(deadline.is_zero(), "lost partitions are not waited for");
        println!("child: lost {}", ids.len());
    });
    member
        .until("return", |seen| seen.connected.last() == Some(&true))
        .await;
    member
        .until("a partition", |seen| !seen.owned.is_empty())
        .await;
    two(&member);
    member.until("both", |seen| seen.owned.len() == 2).await;
    two(&member);
    // Until it is killed.
    std::future::pending::<()>().await;
}

/// Both other ways to form a group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_eager_protocol_and_the_brokers_own_work_as_well() {
    let Some(brokers) = brokers() else { return };
    for (key, value) in [
        ("partition.assignment.strategy", "range"),
        ("group.protocol", "consumer"),
    ] {
        let topic = Topic::create(&brokers, 2).await;
        for partition in 0..2 {
            topic.produce(partition, 0..100);
        }
        let mut first = Member::start(topic.source().set(key, value), Policy::Settle).await;
        first
            .until("all of it", |seen| seen.deliveries.len() == 200)
            .await;
        let mut second = Member::start(topic.source().set(key, value), Policy::Settle).await;
        second
            .until("a partition", |seen| seen.owned.len() == 1)
            .await;
        first
            .until("a partition", |seen| seen.owned.len() == 1)
            .await;
        for partition in 0..2 {
            topic.produce(partition, 100..200);
            until_committed(&topic, partition, 200).await;
        }
        second.look(|seen| {
            assert!(
                seen.deliveries
                    .iter()
                    .all(|d| super::member::place(d).1 >= 100)
            );
        });
        first.close().await;
        second.close().await;
    }
}
