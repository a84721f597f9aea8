//! Dead letters that are sent through again.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use oneffect_core::testing::{
    Call, Fault, MemoryLog, MemoryLogSource, MemoryQueue, MemoryStore, Message, Unreliable,
};
use oneffect_core::{
    Blame, Consumer, ConsumerConfig, Context, DeadLetterKind, DeadLetters, Failure, Fingerprint,
    Handler, HandlerResult, IdFrom, LetterFilter, Raw, Redrive, RedriveAs, RedriveReport, Refusal,
    RetrySchedule, Settled, Stats, Store, done,
};

use super::bench::*;
use super::crash_guard::suspect;
use super::days::{id_of, maintained_store};

const ATTEMPTS: u32 = 2;

fn consumer(log: &MemoryLog, store: &MemoryStore, handler: &Scripted) -> ConsumerOf {
    Consumer::new("test", log.source(), store.clone(), handler.clone())
        .retry(RetrySchedule::default().max_attempts(ATTEMPTS))
}

type ConsumerOf = Consumer<oneffect_core::testing::MemoryLogSource, MemoryStore, Scripted>;

/// Two attempts of an event that fail, and then this.
fn dead(id: &str, then: &[&str]) -> Message {
    event(id, &[&["fail", "fail"], then].concat())
}

/// A store in which these events are set aside, and the handler that has failed for them.
async fn with_dead(events: Vec<Message>) -> (MemoryLog, MemoryStore, Scripted) {
    let (log, store, handler) = (
        MemoryLog::new("t", 2),
        MemoryStore::new(),
        Scripted::default(),
    );
    for event in events {
        log.produce(0, event);
    }
    let running = start(consumer(&log, &store, &handler));
    until_drained(&log, 2).await;
    running.stop().await.unwrap();
    (log, store, handler)
}

fn all() -> LetterFilter {
    LetterFilter::of("test")
}

async fn mark(store: &MemoryStore) -> u64 {
    let requested = store.request_redrive(&all(), RedriveAs::Itself).await;
    requested.unwrap().requested
}

fn config(change: impl FnOnce(&mut ConsumerConfig)) -> ConsumerConfig {
    let mut config = ConsumerConfig::default();
    config.seed = Some(1);
    change(&mut config);
    config
}

async fn redrive<S, H>(store: &S, handler: H, redrive_as: RedriveAs) -> RedriveReport
where
    S: Store,
    H: Handler<S>,
{
    Redrive::new("test", store.clone(), handler)
        .config(config(|_| ()))
        .run(LetterFilter::default(), redrive_as)
        .await
        .unwrap()
}

#[track_caller]
fn assert_report(report: &RedriveReport, applied: u64, rejected: u64, settled: u64, given_up: u64) {
    let counts = (
        report.applied,
        report.rejected,
        report.was_settled,
        report.given_up,
    );
    assert_eq!(counts, (applied, rejected, settled, given_up), "{report:?}");
}

/// The way of an operator: a running consumer redrives what is marked, and what the broker delivers
/// again before and after is a duplicate.
#[tokio::test(start_paused = true)]
async fn a_marked_letter_takes_effect_once_beside_the_stream() {
    locally(async {
        let (log, store, handler) = with_dead(vec![dead("a", &["go"])]).await;
        let running = start(consumer(&log, &store, &handler));
        log.produce(0, dead("a", &["go"]));
        until_drained(&log, 1).await;
        assert_settled(&store, "a", Settled::Dead);
        assert_once(&store, [""; 0]);

        assert_eq!(mark(&store).await, 1);
        for n in 0..200 {
            log.produce(n % 2, event(&format!("n{n}"), &[]));
            log.produce(0, dead("a", &["go"]));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until("it is redriven", || store.dead_letters().is_empty()).await;
        log.produce(0, dead("a", &["go"]));
        until_drained(&log, 2).await;
        let stats = running.stop().await.unwrap();

        assert_settled(&store, "a", DONE);
        assert_once(
            &store,
            (0..200).map(|n| format!("n{n}")).chain(["a".into()]),
        );
        assert_eq!(handler.times("a"), 3);
        assert_eq!((stats.redriven, stats.redrives_failed), (1, 0));
        assert_eq!((stats.applied, stats.duplicates), (200, 202));
    })
    .await;
}

/// Nobody redrives what nobody has asked for.
#[tokio::test(start_paused = true)]
async fn a_letter_that_is_not_marked_stays() {
    locally(async {
        let (log, store, handler) = with_dead(vec![dead("a", &["go"])]).await;
        let running = start(consumer(&log, &store, &handler));
        tokio::time::sleep(Duration::from_mins(10)).await;
        running.stop().await.unwrap();
        assert_eq!(handler.times("a"), 2);
        assert_eq!(store.dead_letters().len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn letters_of_a_lane_are_redriven_in_order_and_others_do_not_wait() {
    for by_consumer in [true, false] {
        locally(async move {
            let lane = |id, then: &[&str], key: &'static str| dead(id, then).key(key);
            let (log, store, handler) = with_dead(vec![
                lane("a1", &["fail", "fail", "go"], "a"),
                lane("a2", &["go"], "a"),
                lane("b1", &["go"], "b"),
                lane("a3", &["go"], "a"),
            ])
            .await;
            if by_consumer {
                let running = start(consumer(&log, &store, &handler));
                mark(&store).await;
                until("all are redriven", || store.dead_letters().is_empty()).await;
                running.stop().await.unwrap();
            } else {
                let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;
                assert_report(&report, 4, 0, 0, 0);
            }
            assert_eq!(store.rows("effect"), ["b1", "a1", "a2", "a3"]);
            assert_eq!(handler.times("a1"), 5);
        })
        .await;
    }
}

/// A letter that fails for good goes on as an event does: it is set aside, and its lane goes on.
#[tokio::test(start_paused = true)]
async fn a_redrive_that_fails_stays_as_one_letter_and_its_lane_goes_on() {
    for by_consumer in [true, false] {
        for act in ["fail", "fail_late", "panic_late", "swallow"] {
            locally(async move {
                let (log, store, handler) =
                    with_dead(vec![dead("a", &[act]), dead("b", &["go"])]).await;
                if by_consumer {
                    let running = start(consumer(&log, &store, &handler));
                    mark(&store).await;
                    until("the other is redriven", || store.dead_letters().len() == 1).await;
                    let stats = running.stop().await.unwrap();
                    assert_eq!((stats.redriven, stats.redrives_failed), (1, 3));
                } else {
                    let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;
                    assert_report(&report, 1, 0, 0, 1);
                }

                assert_once(&store, ["b"]);
                assert_settled(&store, "a", Settled::Dead);
                let letter = store.list_letters(&all()).await.unwrap().remove(0);
                assert_eq!((letter.attempts, letter.redrive), (2 + 3, None), "{act}");
                assert_eq!(letter.deliveries, 1);
                assert!(handler.times("a") >= 5, "{act}");
                assert_eq!(store.open_units(), 0);
            })
            .await;
        }
    }
}

/// Handler contract clause 5: while a letter runs, nothing of its lane does.
#[tokio::test(start_paused = true)]
async fn a_redrive_keeps_its_lane_to_itself_while_it_runs() {
    locally(async {
        let (log, store, handler) = with_dead(vec![dead("a", &["slow"])]).await;
        let running = start(consumer(&log, &store, &handler));
        mark(&store).await;
        until("it runs", || handler.times("a") == 3).await;
        log.produce(0, event("same lane", &[]));
        log.produce(1, event("another lane", &[]));
        until_drained(&log, 2).await;
        running.stop().await.unwrap();
        assert_eq!(store.rows("effect"), ["another lane", "a", "same lane"]);
    })
    .await;
}

/// An event behind it in the stream may fail for the very want of it.
#[tokio::test(start_paused = true)]
async fn a_letter_is_redriven_while_its_lane_waits_for_a_retry() {
    locally(async {
        let (log, store, handler) = with_dead(vec![dead("a", &["go"])]).await;
        let schedule = RetrySchedule::default()
            .base(Duration::from_hours(1))
            .cap(Duration::from_hours(1));
        let running = start(consumer(&log, &store, &handler).retry(schedule));
        log.produce(0, event("b", &["fail", "go"]));
        until("it waits", || store.attempts("test", &key("b")).is_some()).await;
        mark(&store).await;
        until("it is redriven", || store.dead_letters().is_empty()).await;
        assert_once(&store, ["a"]);
        assert_eq!(handler.times("b"), 1);
        until_drained(&log, 2).await;
        running.stop().await.unwrap();
        assert_eq!(store.rows("effect"), ["a", "b"]);
    })
    .await;
}

/// Whose partition it is redrives it: elsewhere its lane may be at work.
#[tokio::test(start_paused = true)]
async fn a_letter_is_redriven_by_the_owner_of_its_partition() {
    locally(async {
        let (log, store, handler) = with_dead(vec![dead("a", &["go"])]).await;
        let handlers = [handler.clone(), handler.clone()].map(|_| Scripted::default());
        let sources = [log.source(), log.source()];
        let members: Vec<_> = sources.iter().map(MemoryLogSource::member).collect();
        let running: Vec<_> = sources
            .into_iter()
            .zip(&handlers)
            .map(|(source, handler)| {
                let fixed = Fixed(handler.clone());
                start(Consumer::new("test", source, store.clone(), fixed))
            })
            .collect();
        let owner = |partition| log.owner(partition);
        until("both have a partition", || {
            owner(0).is_some() && owner(1).is_some() && owner(0) != owner(1)
        })
        .await;
        mark(&store).await;
        until("it is redriven", || store.dead_letters().is_empty()).await;

        for (member, handler) in members.iter().zip(&handlers) {
            let expected = usize::from(owner(0) == Some(*member));
            assert_eq!(handler.times("a"), expected);
        }
        for running in running {
            running.stop().await.unwrap();
        }
        assert_once(&store, ["a"]);
    })
    .await;
}

/// A version of the handler in which all is mended: it reads anything.
#[derive(Clone)]
struct Fixed(Scripted);

impl<S> Handler<S> for Fixed
where
    S: Store<
            Connection = oneffect_core::testing::MemoryConnection,
            Row = oneffect_core::testing::MemoryRow,
        >,
{
    type Event = Raw;

    async fn handle(&self, cx: &mut Context<'_, S>, _: Raw) -> HandlerResult {
        let id = cx.event_key().id.to_string();
        self.0.enter(&id);
        cx.db().await?.append("effect", id).await?;
        done()
    }
}

/// A stop waits for a redrive as it does for a unit, and tells it.
#[tokio::test(start_paused = true)]
async fn a_stop_lets_a_redrive_finish_or_give_up() {
    for (then, applied) in [("slow", true), ("until_cancelled", false), ("hang", false)] {
        locally(async move {
            let (log, store, handler) = with_dead(vec![dead("a", &[then])]).await;
            let running = start(consumer(&log, &store, &handler));
            mark(&store).await;
            until("it runs", || handler.times("a") == 3).await;
            running.stop().await.unwrap();

            assert_once(&store, ["a"].into_iter().filter(|_| applied));
            assert_eq!(store.dead_letters().len(), usize::from(!applied), "{then}");
            // Nobody is charged for being told to stop.
            let list = store.list_letters(&all()).await.unwrap();
            assert!(list.iter().all(|letter| letter.attempts == 2), "{then}");
            assert_eq!(store.open_units(), 0);
        })
        .await;
    }
}

/// Polls a future until it waits for the `n`th time, and then drops it.
async fn drop_at<T>(n: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut waits = 0;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => {
            waits += 1;
            if waits == n {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_redrive_killed_at_any_step_is_redriven_once_more_and_takes_effect_once() {
    locally(async {
        let mut steps = 0;
        for n in 1.. {
            let (log, store, _) = with_dead(vec![dead("a", &[]), dead("b", &[])]).await;
            let handler = Fixed(Scripted::default());
            let killed = Redrive::new("test", store.clone(), handler.clone())
                .config(config(|_| ()))
                .run(all(), RedriveAs::Itself);
            let whole = drop_at(n, Box::pin(killed)).await;

            // At every step: its effect, or its letter.
            for id in ["a", "b"] {
                let letters = store.dead_letters().into_iter();
                let here = letters.filter(|(letter, _)| letter.event == Some(key(id)));
                let effect = effects(&store).get(id).copied().unwrap_or_default();
                assert_eq!(here.count() + effect, 1, "step {n}, {id}");
                let expected = if effect == 1 { DONE } else { Settled::Dead };
                assert_settled(&store, id, expected);
            }
            // The broker delivers them again meanwhile.
            log.produce(0, dead("b", &[]));
            let running = start(consumer(&log, &store, &Scripted::default()));
            until_drained(&log, 2).await;
            running.stop().await.unwrap();
            let report = redrive(&store, handler, RedriveAs::Itself).await;
            assert_eq!(report.given_up, 0);
            assert_eq!(store.rows("effect"), ["a", "b"], "step {n}");
            assert!(store.dead_letters().is_empty());
            assert_eq!(store.open_units(), 0);
            if whole.is_some() {
                break;
            }
            steps = n;
        }
        assert!(steps > 20, "{steps}");
    })
    .await;
}

/// The answer to the commit is lost, before it or behind it; and every other call fails once.
#[tokio::test(start_paused = true)]
async fn whatever_of_the_store_fails_a_redrive_takes_effect_once() {
    let commits = [
        Fault::BeforeCommit,
        Fault::DuringCommit,
        Fault::LostBefore,
        Fault::AfterCommit,
        Fault::LateCommit(Duration::from_secs(3)),
    ];
    let calls = [
        Call::Begin,
        Call::Claim,
        Call::Write,
        Call::Letters,
        Call::Record,
    ];
    for by_consumer in [true, false] {
        for fault in 0..commits.len() + 3 * calls.len() {
            locally(async move {
                let (log, inner, handler) =
                    with_dead(vec![dead("a", &["reject"]), dead("b", &["go"])]).await;
                let store = Unreliable::new(inner.clone());
                if let Some(commit) = commits.get(fault) {
                    store.fail_next_commit(*commit);
                } else {
                    let call = calls[(fault - commits.len()) / 3];
                    let blame = [Blame::Event, Blame::Contention, Blame::Outage][fault % 3];
                    store.fail_next(call, blame);
                }
                if by_consumer {
                    let running = start(Consumer::new(
                        "test",
                        log.source(),
                        store.clone(),
                        handler.clone(),
                    ));
                    mark(&inner).await;
                    until("both are redriven", || inner.dead_letters().is_empty()).await;
                    running.stop().await.unwrap();
                } else {
                    let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;
                    assert_eq!(report.given_up, 0, "{fault}");
                }
                let reason = "never".into();
                assert_settled(&inner, "a", Settled::Rejected { reason });
                assert_once(&inner, ["b"]);
                assert!(inner.dead_letters().is_empty());
                assert_eq!(inner.open_units(), 0);
            })
            .await;
        }
    }
}

/// A letter without an event key is identified anew, by the newer version's idea of where ids are.
#[tokio::test(start_paused = true)]
async fn a_letter_without_an_id_is_identified_anew() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(0, event("a", &[]));
        log.produce(0, Message::new("no json at all"));
        let running = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .event_id(IdFrom::header("id")),
        );
        until_drained(&log, 1).await;
        running.stop().await.unwrap();
        assert_eq!(store.dead_letters().len(), 2);

        let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;

        assert_report(&report, 1, 0, 0, 1);
        assert_once(&store, ["a"]);
        assert_settled(&store, "a", DONE);
        let left = store.list_letters(&all()).await.unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(
            (left[0].kind, left[0].attempts),
            (DeadLetterKind::Poison, 1)
        );
        assert!(left[0].error.contains("not JSON"), "{}", left[0].error);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_letter_whose_event_was_settled_meanwhile_goes_without_an_effect() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(0, event("a", &[]));
        let blind = Consumer::new("test", log.source(), store.clone(), handler.clone())
            .event_id(IdFrom::header("id"));
        let running = start(blind);
        until_drained(&log, 1).await;
        running.stop().await.unwrap();
        log.produce(0, event("a", &[]));
        let running = start(consumer(&log, &store, &handler));
        until_drained(&log, 1).await;
        running.stop().await.unwrap();

        let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;

        assert_report(&report, 0, 0, 1, 0);
        assert_once(&store, ["a"]);
        assert!(store.dead_letters().is_empty());
    })
    .await;
}

/// Field case 166: what cannot be handled stays one letter, and makes no others.
#[tokio::test(start_paused = true)]
async fn what_does_not_decode_waits_for_a_version_that_reads_it() {
    locally(async {
        let unreadable = Message::new(r#"{"event_id":"a","script":7}"#);
        let (_log, store, handler) = with_dead(vec![unreadable]).await;
        assert_settled(&store, "a", Settled::Dead);

        for _ in 0..20 {
            let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;
            assert_report(&report, 0, 0, 0, 1);
        }
        let letters = store.list_letters(&all()).await.unwrap();
        assert_eq!(letters.len(), 1);
        assert_eq!((letters[0].attempts, letters[0].deliveries), (20, 1));
        let error = &letters[0].error;
        assert_eq!(error.matches("does not decode").count(), 1, "{error}");
        assert_settled(&store, "a", Settled::Dead);

        let fixed = Fixed(Scripted::default());
        let report = redrive(&store, fixed, RedriveAs::Itself).await;
        assert_report(&report, 1, 0, 0, 0);
        assert_once(&store, ["a"]);
        assert_settled(&store, "a", DONE);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_redriven_event_that_is_rejected_leaves_its_reason_and_nothing_else() {
    for act in ["reject", "reject_late"] {
        locally(async move {
            let (_log, store, handler) = with_dead(vec![dead("a", &[act])]).await;
            let report = redrive(&store, handler, RedriveAs::Itself).await;
            assert_report(&report, 0, 1, 0, 0);
            let reason = "never".into();
            assert_settled(&store, "a", Settled::Rejected { reason });
            assert!(store.dead_letters().is_empty() && effects(&store).is_empty());
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_event_that_was_set_aside_is_redriven_until_it_is_not_rejected() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Scripted::default(),
        );
        log.produce(
            0,
            event("a", &["reject", "reject_late", "reject_late", "go"]),
        );
        let running = start(consumer(&log, &store, &handler).set_aside_rejected());
        until_drained(&log, 1).await;
        running.stop().await.unwrap();

        let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;
        assert_report(&report, 0, 0, 0, 1);
        let reason = "never".into();
        assert_settled(&store, "a", Settled::Rejected { reason });
        assert_eq!(store.dead_letters().len(), 1);

        // What arrives meanwhile is still told of the rejection.
        log.produce(0, event("a", &["go"]));
        let running = start(consumer(&log, &store, &handler));
        until_drained(&log, 1).await;
        assert_eq!(running.stop().await.unwrap().duplicates, 1);

        let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;
        assert_report(&report, 1, 0, 0, 0);
        assert_settled(&store, "a", DONE);
        assert_once(&store, ["a"]);
        assert!(store.dead_letters().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_redriven_as_new_alone_and_once_for_each_content() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        let content =
            |amount: u32| Message::new(format!(r#"{{"event_id":"a","amount":{amount}}}"#));
        let deliver = async |amounts: &[u32]| -> Stats {
            for amount in amounts {
                log.produce(0, content(*amount));
            }
            let running = start(
                Consumer::new("test", log.source(), store.clone(), Scripted::default())
                    .fingerprint(Fingerprint::Payload),
            );
            until_drained(&log, 1).await;
            running.stop().await.unwrap()
        };
        let fixed = Fixed(Scripted::default());
        let as_new = async || {
            Redrive::new("test", store.clone(), fixed.clone())
                .config(config(|config| config.fingerprint = Fingerprint::Payload))
                .run(LetterFilter::default(), RedriveAs::New)
                .await
                .unwrap()
        };
        assert_eq!(deliver(&[1, 2, 3]).await.mismatches, 2);

        let report = redrive(&store, fixed.clone(), RedriveAs::Itself).await;
        let refused = &report.requested.refused;
        assert_eq!(refused.len(), 2);
        assert!(refused.iter().all(|(_, why)| *why == Refusal::Mismatch));
        assert_report(&report, 0, 0, 0, 0);
        assert_eq!(effects(&store).len(), 1);

        assert_report(&as_new().await, 2, 0, 0, 0);
        assert_eq!(effects(&store).len(), 3);
        assert!(store.dead_letters().is_empty());

        // The same content comes again: it is a mismatch again, and not new again.
        assert_eq!(deliver(&[2]).await.mismatches, 1);
        assert_report(&as_new().await, 0, 0, 1, 0);
        assert_eq!(effects(&store).len(), 3);
        assert!(effects(&store).values().all(|times| *times == 1));
        assert_settled(&store, "a", DONE);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_filter_for_another_consumer_is_refused() {
    let store = MemoryStore::new();
    let redrive = Redrive::new("test", store, Scripted::default());
    let refused = redrive
        .run(LetterFilter::of("other"), RedriveAs::Itself)
        .await;
    let text = format!("{:?}", refused.unwrap_err());
    assert!(text.contains("other") && text.contains("test"), "{text}");
}

/// A queue has no partitions: whoever comes first redrives, and a message group keeps its order.
#[tokio::test(start_paused = true)]
async fn letters_of_queues_are_redriven() {
    locally(async {
        let (queue, store, handler) = (
            MemoryQueue::fifo("q"),
            MemoryStore::new(),
            Scripted::default(),
        );
        let consumer = || {
            Consumer::new("test", queue.source(), store.clone(), handler.clone())
                .retry(RetrySchedule::default().max_attempts(ATTEMPTS))
        };
        for (id, group) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
            let then: &[&str] = if id == "a1" { &["fail", "go"] } else { &["go"] };
            queue.send(dead(id, then).group(group));
        }
        let running = start(consumer());
        until("all are set aside", || store.dead_letters().len() == 3).await;
        mark(&store).await;
        until("all are redriven", || store.dead_letters().is_empty()).await;
        running.stop().await.unwrap();
        assert_eq!(store.rows("effect"), ["b1", "a1", "a2"]);
    })
    .await;
}

/// Whether it took effect before its day was forgotten, nobody can say: so it is for a person to
/// say that it is new. Both of an event that came too late, and of one that was set aside in time
/// and redriven too late.
#[tokio::test(start_paused = true)]
async fn a_letter_whose_day_is_forgotten_is_redriven_as_new_alone() {
    for too_late_at_first in [true, false] {
        locally(async move {
            let (store, today) = maintained_store().await;
            let (log, handler) = (MemoryLog::new("t", 1), Scripted::default());
            let day = if too_late_at_first {
                today.plus(-20)
            } else {
                today
            };
            let id = id_of(day, 1);
            log.produce(0, dead(&id, &["go"]));
            let running = start(consumer(&log, &store, &handler));
            until("it is set aside", || store.dead_letters().len() == 1).await;
            running.stop().await.unwrap();
            if !too_late_at_first {
                let month = Duration::from_hours(24 * 30);
                store.set_now(store.now() + month);
                store.maintain().await.unwrap();
                assert_eq!(store.outcome("test", &key(&id)), None, "it is forgotten");
            }
            let entered = handler.times(&id);

            let report = redrive(&store, handler.clone(), RedriveAs::Itself).await;
            assert_report(&report, 0, 0, 0, 1);
            assert_eq!(handler.times(&id), entered, "it is not even tried");
            let left = store.list_letters(&all()).await.unwrap().remove(0);
            assert!(left.error.contains("as new"), "{}", left.error);
            assert!(left.error.contains(&day.to_string()), "{}", left.error);

            let fixed = Fixed(Scripted::default());
            let report = redrive(&store, fixed, RedriveAs::New).await;
            assert_report(&report, 1, 0, 0, 0);
            assert_once(&store, [id.clone()]);
            assert_settled(&store, &id, DONE);
            assert!(store.dead_letters().is_empty());
        })
        .await;
    }
}

/// Fails, whatever it is given.
struct Fails;

impl<S: Store> Handler<S> for Fails {
    type Event = Raw;

    async fn handle(&self, _: &mut Context<'_, S>, _: Raw) -> HandlerResult {
        Err(Failure::new("not now"))
    }
}

/// Letters whose redrive takes a second.
async fn with_slow_letters(letters: u32) -> (MemoryLog, MemoryStore, Scripted) {
    let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
    for n in 0..letters {
        log.produce(0, event(&format!("d{n}"), &["slow"]));
    }
    let running = start(
        Consumer::new("test", log.source(), store.clone(), Fails)
            .retry(RetrySchedule::default().max_attempts(ATTEMPTS))
            .outage_patience(Duration::ZERO),
    );
    until_drained(&log, 2).await;
    running.stop().await.unwrap();
    (log, store, Scripted::default())
}

/// With one worker (as on SQLite) a long row of letters would have it to the last.
#[tokio::test(start_paused = true)]
async fn the_stream_has_its_turn_among_many_letters() {
    locally(async {
        let (log, store, handler) = with_slow_letters(20).await;
        let running = start(consumer(&log, &store, &handler).workers(1));
        assert_eq!(mark(&store).await, 20);
        until("the first is redriven", || handler.times("d0") == 1).await;
        for n in 0..5 {
            log.produce(1, event(&format!("n{n}"), &[]));
        }
        until_drained(&log, 2).await;
        let left = store.dead_letters().len();
        until("all are redriven", || store.dead_letters().is_empty()).await;
        running.stop().await.unwrap();

        assert!(left > 10, "{left} letters were left");
    })
    .await;
}

/// An event that must run alone waits for the redrive that runs, and for no other; and the stream
/// behind it waits as long.
#[tokio::test(start_paused = true)]
async fn a_suspect_has_its_turn_among_many_letters() {
    locally(async {
        let (log, store, handler) = with_slow_letters(20).await;
        suspect(&store, "x").await;
        let running = start(consumer(&log, &store, &handler).workers(4).crash_guard(3));
        assert_eq!(mark(&store).await, 20);
        until("the first is redriven", || handler.times("d0") == 1).await;
        log.produce(1, event("x", &[]));
        log.produce(1, event("y", &[]));
        until_drained(&log, 2).await;
        let left = store.dead_letters().len();
        until("all are redriven", || store.dead_letters().is_empty()).await;
        running.stop().await.unwrap();

        assert!(left > 10, "{left} letters were left");
    })
    .await;
}
