//! What the contract suite does not reach: how partitions move.

use super::*;
use crate::delivery::{AssignmentId, Delivery};
use crate::source::{Revocation, Settle, Settlement, Source, SourceEvent};

async fn join(log: &MemoryLog) -> MemoryLogSource {
    let mut source = log.source();
    source.open().await.unwrap();
    assert!(matches!(
        source.next().await,
        Ok(SourceEvent::Connected(true))
    ));
    source
}

async fn assigned(source: &mut MemoryLogSource) -> Vec<String> {
    let event = source.next().await.unwrap();
    let SourceEvent::Assigned(assignments) = event else {
        panic!("{event:?}")
    };
    assignments
        .iter()
        .map(|assignment| assignment.name.to_string())
        .collect()
}

async fn revoked(source: &mut MemoryLogSource) -> Revocation {
    let event = source.next().await.unwrap();
    let SourceEvent::Revoked(revocation) = event else {
        panic!("{event:?}")
    };
    revocation
}

async fn delivered(source: &mut MemoryLogSource) -> Vec<Settlement> {
    let event = source.next().await.unwrap();
    let SourceEvent::Deliveries(deliveries) = event else {
        panic!("{event:?}")
    };
    let acknowledge = |delivery: &Delivery| Settlement {
        assignment: delivery.assignment,
        tag: delivery.tag,
        settle: Settle::Ack,
    };
    deliveries.iter().map(acknowledge).collect()
}

async fn is_quiet(source: &mut MemoryLogSource) -> bool {
    tokio::time::timeout(Duration::from_secs(1), source.next())
        .await
        .is_err()
}

fn log_of(records: usize) -> MemoryLog {
    let log = MemoryLog::new("orders", 1);
    for _ in 0..records {
        log.produce(0, Message::new("x"));
    }
    log
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_gets_its_share_once_the_old_member_has_let_go() {
    let log = MemoryLog::new("orders", 3);
    let mut old = join(&log).await;
    assert_eq!(
        assigned(&mut old).await,
        ["orders/0", "orders/1", "orders/2"]
    );

    let mut newcomer = join(&log).await;
    let revocation = revoked(&mut old).await;
    assert!(is_quiet(&mut newcomer).await);
    drop(revocation);
    assert!(is_quiet(&mut old).await);

    assert_eq!(assigned(&mut newcomer).await, ["orders/2"]);
    drop(old);
    assert_eq!(assigned(&mut newcomer).await, ["orders/0", "orders/1"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_settled_before_letting_go_is_committed_and_the_rest_goes_to_the_next() {
    let log = log_of(3);
    let mut old = join(&log).await;
    assigned(&mut old).await;
    let deliveries = delivered(&mut old).await;
    let mut next = join(&log).await;
    log.assign(next.member(), 0);

    let revocation = revoked(&mut old).await;
    old.settle(&deliveries[..1]);
    drop(revocation);
    old.settle(&deliveries[1..2]);

    assert_eq!(log.committed(0), 1);
    assert_eq!(log.late_settlements(), 1);
    assigned(&mut next).await;
    assert_eq!(delivered(&mut next).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_does_not_let_go_loses_the_partition_at_the_deadline() {
    let log = log_of(1);
    let mut source = join(&log).await;
    assigned(&mut source).await;
    let deliveries = delivered(&mut source).await;

    log.revoke(source.member(), 0, Duration::from_secs(5));
    let _kept = revoked(&mut source).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    source.settle(&deliveries);

    assert_eq!(log.owner(0), None);
    assert_eq!((log.committed(0), log.late_settlements()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_partition_can_not_be_settled_any_more() {
    let log = log_of(1);
    let mut source = join(&log).await;
    assigned(&mut source).await;
    let deliveries = delivered(&mut source).await;

    log.lose(source.member(), 0);
    log.assign(source.member(), 0);
    source.settle(&deliveries);

    assert_eq!((log.committed(0), log.late_settlements()), (0, 1));
    let revocation = revoked(&mut source).await;
    assert_eq!(revocation.assignments, [AssignmentId(1)]);
    assert_eq!(revocation.deadline, Duration::ZERO);
    assigned(&mut source).await;
    assert_eq!(delivered(&mut source).await[0].assignment, AssignmentId(2));
}

#[tokio::test(start_paused = true)]
async fn gaps_do_not_stall_the_watermark() {
    let log = log_of(1);
    log.skip_offsets(0, 2);
    log.produce(0, Message::new("x"));
    log.skip_offsets(0, 1);
    let mut source = join(&log).await;
    assigned(&mut source).await;
    let deliveries = delivered(&mut source).await;

    source.settle(&deliveries[1..]);
    assert_eq!(log.committed(0), 0);
    source.settle(&deliveries[..1]);

    assert_eq!((log.committed(0), log.end(0)), (4, 5));
}

#[tokio::test(start_paused = true)]
async fn a_crash_forgets_what_was_not_committed_yet() {
    let log = MemoryLog::with_commit_interval("orders", 1, Duration::from_secs(5));
    log.produce(0, Message::new("x"));
    let mut source = join(&log).await;
    assigned(&mut source).await;
    let deliveries = delivered(&mut source).await;
    source.settle(&deliveries);

    drop(source);
    assert_eq!(log.committed(0), 0);

    let mut source = join(&log).await;
    assigned(&mut source).await;
    let deliveries = delivered(&mut source).await;
    source.settle(&deliveries);
    tokio::select! {
        _ = source.next() => panic!("there is nothing to say"),
        () = tokio::time::sleep(Duration::from_secs(6)) => {}
    }
    assert_eq!(log.committed(0), 1);
}
