//! Events whose handlers end the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneffect_core::testing::{
    Call, Fault, MemoryLog, MemoryQueue, MemoryRow, MemoryStore, Unreliable,
};
use oneffect_core::{
    Blame, Consumer, Context, DaysFrom, DeadLetterKind, DeadLetters, Failure, Handler,
    HandlerResult, LetterFilter, ProcessId, RedriveAs, RetrySchedule, RunError, Settled, Started,
    Store, TimeFrom, done,
};
use tokio::sync::Notify;

use super::bench::*;

/// Handles an event in 100 ms; one whose id begins with `poison` ends the process: the test is told,
/// and drops the consumer.
#[derive(Clone, Debug, Default)]
struct Deadly {
    dies: Arc<Notify>,
    running: Arc<AtomicUsize>,
    /// What was entered, and how many others ran then.
    entered: Arc<Mutex<Vec<(String, usize)>>>,
}

struct Runs<'r>(&'r AtomicUsize);

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deadly {
    fn entered(&self) -> Vec<(String, usize)> {
        self.entered.lock().unwrap().clone()
    }
}

impl<S: Store<Row = MemoryRow>> Handler<S> for Deadly {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, S>, event: Event) -> HandlerResult {
        let others = self.running.fetch_add(1, Ordering::Relaxed);
        let _runs = Runs(&self.running);
        let id = event.event_id;
        self.entered.lock().unwrap().push((id.clone(), others));
        tokio::time::sleep(Duration::from_millis(100)).await;
        if id.starts_with("poison") {
            self.dies.notify_one();
            std::future::pending::<()>().await;
        }
        if event.script.contains(&Act::Fail) {
            return Err(Failure::new("not now"));
        }
        cx.stage(MemoryRow::new("effect", id));
        done()
    }
}

/// Starts a consumer again each time that it dies, until the log is drained; how often it died.
async fn run_until_drained(
    log: &MemoryLog,
    partitions: i32,
    store: &MemoryStore,
    handler: &Deadly,
    limit: u32,
) -> usize {
    for deaths in 0..100 {
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .workers(4)
                .crash_guard(limit),
        );
        let drained = until_drained(log, partitions);
        let died = tokio::select! {
            () = handler.dies.notified() => true,
            () = drained => false,
        };
        if !died {
            consumer.stop().await.unwrap();
            return deaths;
        }
        consumer.crash().await;
    }
    panic!("the crash loop never ended");
}

fn kinds(store: &MemoryStore) -> Vec<(DeadLetterKind, String)> {
    let letters = store.dead_letters().into_iter();
    let kinds = letters.map(|(letter, _)| (letter.kind, letter.event.unwrap().to_string()));
    kinds.collect()
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_ends_and_only_the_culprit_is_set_aside_in_its_place() {
    for limit in [1, 3] {
        locally(async move {
            let (log, store, handler) = (
                MemoryLog::new("t", 4),
                MemoryStore::new(),
                Deadly::default(),
            );
            for n in 0..40 {
                log.produce(n % 4, event(&format!("e{n}"), &[]));
            }
            log.produce(1, event("poison", &[]));
            for n in 40..80 {
                log.produce(n % 4, event(&format!("e{n}"), &[]));
            }

            let deaths = run_until_drained(&log, 4, &store, &handler, limit).await;

            assert_eq!(deaths, 1 + limit as usize, "once in company, then alone");
            assert_eq!(
                kinds(&store),
                [(DeadLetterKind::Crashed, "poison".to_owned())]
            );
            let letter = &store.dead_letters()[0].0;
            assert!(
                letter.error.contains(&format!("{limit} times")),
                "{}",
                letter.error
            );
            assert_settled(&store, "poison", Settled::Dead);
            assert_once(&store, (0..80).map(|n| format!("e{n}")));
            for lane in 0..4 {
                let in_order = (store.rows("effect").into_iter())
                    .map(|id| id[1..].parse::<usize>().unwrap())
                    .filter(|n| n % 4 == lane);
                assert!(in_order.is_sorted(), "lane {lane}");
            }
            assert_eq!(store.started(), [], "nothing is left behind");
        })
        .await;
    }
}

/// Several at once: while one of them ends the process, the others must not run, or they would take
/// the blame.
#[tokio::test(start_paused = true)]
async fn what_may_end_the_process_runs_when_nothing_else_does() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 4),
            MemoryStore::new(),
            Deadly::default(),
        );
        for lane in 0..4 {
            log.produce(lane, event(&format!("innocent{lane}"), &[]));
            log.produce(lane, event(&format!("poison{lane}"), &[]));
            log.produce(lane, event(&format!("after{lane}"), &[]));
        }
        let deaths = run_until_drained(&log, 4, &store, &handler, 2).await;
        assert!(deaths <= 1 + 4 * 2 + 4, "{deaths}");
        assert!(
            kinds(&store)
                .iter()
                .all(|(kind, id)| { *kind == DeadLetterKind::Crashed && id.starts_with("poison") })
        );
        let innocents = (0..4).flat_map(|n| [format!("innocent{n}"), format!("after{n}")]);
        assert_once(&store, innocents);

        // From the second process on, whatever had been begun before ran alone.
        let mut begun = Vec::new();
        let mut since_death = Vec::new();
        for (id, others) in handler.entered() {
            if begun.contains(&id) {
                assert_eq!(others, 0, "{id}");
            }
            since_death.push(id.clone());
            if id.starts_with("poison") {
                begun.append(&mut since_death);
            }
        }
    })
    .await;
}

/// `kill -9` at any moment, again and again, of a process that does nothing wrong.
#[tokio::test(start_paused = true)]
async fn an_innocent_process_that_is_killed_again_and_again_sets_nothing_aside() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 4),
            MemoryStore::new(),
            Deadly::default(),
        );
        for n in 0..60 {
            log.produce(n % 4, event(&format!("e{n}"), &[]));
        }
        for round in 0..20 {
            let before = store.rows("effect").len();
            let consumer = start(
                Consumer::new("test", log.source(), store.clone(), handler.clone()).crash_guard(1),
            );
            until("it works", || store.rows("effect").len() > before).await;
            // Somewhere between two commits, so that whoever runs alone is killed in company at
            // most, and later.
            tokio::time::sleep(Duration::from_millis(7 * round)).await;
            if store.started().iter().all(|(_, started)| !started.alone) {
                consumer.crash().await;
            } else {
                consumer.stop().await.unwrap();
            }
        }
        let last = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone()).crash_guard(1),
        );
        until_drained(&log, 4).await;
        last.stop().await.unwrap();
        assert_eq!(kinds(&store), []);
        assert_once(&store, (0..60).map(|n| format!("e{n}")));
        assert_eq!(store.started(), []);
    })
    .await;
}

/// A consumer number for the store's own methods.
pub(crate) async fn suspect(store: &MemoryStore, id: &str) {
    let consumer = store.open("test", DaysFrom::Id).await.unwrap();
    let started = Started {
        process: ProcessId::from_bytes([7; 16]),
        alone: false,
        crashes: 0,
    };
    store
        .put_started(consumer, &key(id), started)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_fails_has_ended_no_process_and_is_charged_as_ever() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Deadly::default(),
        );
        suspect(&store, "x").await;
        log.produce(0, event("x", &["fail"]));
        log.produce(0, event("y", &[]));
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .retry(RetrySchedule::default().max_attempts(3))
                .crash_guard(1),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(kinds(&store), [(DeadLetterKind::Exhausted, "x".to_owned())]);
        assert_once(&store, ["y"]);
        assert_eq!(store.started(), []);
    })
    .await;
}

/// A stop in good order forgets what was started, also what it aborts.
#[tokio::test(start_paused = true)]
async fn a_stop_that_aborts_a_suspect_is_no_crash() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        suspect(&store, "x").await;
        log.produce(0, event("x", &["hang", "hang", "hang", "go"]));
        let handler = Scripted::default();
        for n in 1..=3 {
            let consumer = start(
                Consumer::new("test", log.source(), store.clone(), handler.clone()).crash_guard(1),
            );
            until("it runs", || handler.times("x") == n).await;
            let stopped = consumer.stop().await;
            assert!(matches!(stopped, Err(RunError::DrainDeadline { .. })));
            assert_eq!(store.started(), []);
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone()).crash_guard(1),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(kinds(&store), []);
        assert_once(&store, ["x"]);
    })
    .await;
}

/// The partition of a suspect that runs goes to another process: the key is held, so nobody has
/// crashed.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_runs_on_after_its_partition_was_lost_is_no_crash() {
    for script in [&["slow", "slow", "go"][..], &["until_cancelled", "go"][..]] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
            suspect(&store, "x").await;
            log.produce(0, event("x", script));
            let handler = Scripted::default();
            let consumer = || {
                let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone());
                start(consumer.crash_guard(1))
            };
            let first = consumer();
            until("it runs alone", || {
                handler.times("x") == 1 && store.started().iter().any(|(_, started)| started.alone)
            })
            .await;
            let member = log.owner(0).unwrap();
            let second = consumer();
            log.lose(member, 0);
            until_drained(&log, 1).await;
            first.stop().await.unwrap();
            second.stop().await.unwrap();
            assert_eq!(kinds(&store), [], "{script:?}");
            assert_once(&store, ["x"]);
            assert_eq!(store.started(), []);
        })
        .await;
    }
}

/// What one process has started and left, since the store went away, is none of its own suspects.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_makes_no_suspects() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 4),
            MemoryStore::new(),
            Deadly::default(),
        );
        for n in 0..200 {
            log.produce(n % 4, event(&format!("e{n}"), &[]));
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone()).crash_guard(1),
        );
        until("it works", || store.rows("effect").len() > 10).await;
        store.set_down(true);
        tokio::time::sleep(Duration::from_secs(20)).await;
        store.set_down(false);
        let entered = handler.entered().len();
        until_drained(&log, 4).await;
        let stats = consumer.stop().await.unwrap();
        let after = &handler.entered()[entered..];
        assert!(
            after.iter().any(|(_, others)| *others > 0),
            "workers run side by side again"
        );
        assert_eq!((stats.dead_lettered, stats.attempts_charged), (0, 0));
        assert_once(&store, (0..200).map(|n| format!("e{n}")));
        assert_eq!(store.started(), []);
    })
    .await;
}

/// What cannot be written down as started does not run, and is nobody's fault; what cannot be
/// forgotten, and answers of commits that are lost, do no harm.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_what_the_guard_writes_loses_and_doubles_nothing() {
    locally(async {
        let (log, memory, handler) = (
            MemoryLog::new("t", 4),
            MemoryStore::new(),
            Deadly::default(),
        );
        let store = Unreliable::new(memory.clone());
        for n in 0..200 {
            log.produce(n % 4, event(&format!("e{n}"), &[]));
        }
        for blame in [Blame::Outage, Blame::Contention, Blame::Event] {
            store.fail_next(Call::NoteStarted, blame);
            store.fail_next(Call::ForgetStarted, blame);
            store.fail_next(Call::Claim, Blame::Contention);
        }
        for fault in [Fault::AfterCommit, Fault::LostBefore, Fault::DuringCommit] {
            store.fail_next_commit(fault);
        }
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone()).crash_guard(1),
        );
        until_drained(&log, 4).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!(store.injected().len(), 12);
        assert_eq!((stats.dead_lettered, stats.attempts_charged), (0, 0));
        assert_once(&memory, (0..200).map(|n| format!("e{n}")));
        assert_eq!(memory.started(), []);
    })
    .await;
}

/// A dead letter that cannot be written leaves the culprit where it is: it does not run again.
#[tokio::test(start_paused = true)]
async fn a_culprit_whose_dead_letter_cannot_be_written_does_not_run_again() {
    locally(async {
        let (log, memory, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Deadly::default(),
        );
        let consumer = memory.open("test", DaysFrom::Id).await.unwrap();
        let started = Started {
            process: ProcessId::from_bytes([7; 16]),
            alone: true,
            crashes: 2,
        };
        memory
            .put_started(consumer, &key("poison"), started)
            .await
            .unwrap();
        let store = Unreliable::new(memory.clone());
        for _ in 0..3 {
            store.fail_next(Call::SetAside, Blame::Outage);
        }
        log.produce(0, event("poison", &[]));
        log.produce(0, event("next", &[]));
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone()).crash_guard(3),
        );
        until_drained(&log, 1).await;
        consumer.stop().await.unwrap();
        assert_eq!(
            kinds(&memory),
            [(DeadLetterKind::Crashed, "poison".to_owned())]
        );
        assert_eq!(handler.entered(), [("next".to_owned(), 0)]);
        assert_eq!(memory.started(), []);
    })
    .await;
}

/// On a queue each event stands for itself; the guard works the same.
#[tokio::test(start_paused = true)]
async fn a_crash_loop_of_a_queue_ends_as_well() {
    locally(async {
        let (queue, store, handler) = (
            MemoryQueue::standard("q"),
            MemoryStore::new(),
            Deadly::default(),
        );
        for n in 0..20 {
            queue.send(event(&format!("e{n}"), &[]));
        }
        queue.send(event("poison", &[]));
        for deaths in 0.. {
            assert!(deaths < 20, "the crash loop never ended");
            let consumer = start(
                Consumer::new("test", queue.source(), store.clone(), handler.clone())
                    .crash_guard(2),
            );
            let died = tokio::select! {
                () = handler.dies.notified() => true,
                () = until("the queue is empty", || queue.remaining() == 0) => false,
            };
            if !died {
                consumer.stop().await.unwrap();
                break;
            }
            consumer.crash().await;
            queue.lapse();
        }
        assert_eq!(
            kinds(&store),
            [(DeadLetterKind::Crashed, "poison".to_owned())]
        );
        assert_once(&store, (0..20).map(|n| format!("e{n}")));
    })
    .await;
}

/// Its letter is no way back into the loop: a redrive that ends the process is not repeated until
/// somebody asks for it again.
#[tokio::test(start_paused = true)]
async fn a_redrive_that_ends_the_process_is_given_up() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Deadly::default(),
        );
        log.produce(0, event("poison", &[]));
        assert_eq!(run_until_drained(&log, 1, &store, &handler, 1).await, 2);
        let all = LetterFilter::of("test");
        let guarded = || {
            let consumer = Consumer::new("test", log.source(), store.clone(), handler.clone());
            start(consumer.crash_guard(1))
        };
        for asked in 1..=2 {
            let requested = store.request_redrive(&all, RedriveAs::Itself).await;
            assert_eq!(requested.unwrap().requested, 1);
            let first = guarded();
            handler.dies.notified().await;
            first.crash().await;

            let second = guarded();
            for _ in 0..1000 {
                let letters = store.list_letters(&all).await.unwrap();
                if letters[0].redrive.is_none() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let letters = store.list_letters(&all).await.unwrap();
            assert!(letters[0].redrive.is_none(), "{letters:?}");
            assert_eq!(handler.entered().len(), 2 + asked);
            second.stop().await.unwrap();
            assert_eq!(store.started(), []);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_would_set_aside_the_innocent_is_refused() {
    locally(async {
        let log = MemoryLog::new("t", 1);
        let consumer = Consumer::new("test", log.source(), MemoryStore::new(), Deadly::default());
        let refused = consumer.crash_guard(0).run(std::future::pending()).await;
        assert!(matches!(refused, Err(RunError::Config(_))), "{refused:?}");
    })
    .await;
}

/// The program that it ended found its time elsewhere than the next one does. What has no day holds no
/// key, and is set aside all the same: it would hold up its lane for ever.
#[tokio::test(start_paused = true)]
async fn a_culprit_without_a_day_is_set_aside_too() {
    locally(async {
        let (log, store, handler) = (
            MemoryLog::new("t", 1),
            MemoryStore::new(),
            Deadly::default(),
        );
        let consumer = store.open("test", DaysFrom::Producer).await.unwrap();
        let started = Started {
            process: ProcessId::from_bytes([7; 16]),
            alone: true,
            crashes: 2,
        };
        store
            .put_started(consumer, &key("poison"), started)
            .await
            .unwrap();
        log.produce(0, event("poison", &[]));
        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), handler.clone())
                .producer_repeats_time(TimeFrom::header("occurred-at"))
                .crash_guard(3),
        );
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();
        assert_eq!(
            kinds(&store),
            [(DeadLetterKind::Crashed, "poison".to_owned())]
        );
        assert_eq!(stats.dead_lettered, 1);
        assert_eq!(handler.entered(), []);
        assert_eq!(store.started(), []);
    })
    .await;
}
