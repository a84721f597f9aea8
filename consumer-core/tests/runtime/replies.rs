//! Replies and rejections, and those who ask again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use oneffect_core::testing::{
    Call, Fault, MemoryConnection, MemoryLog, MemoryRow, MemoryStore, Message, Unreliable,
};
use oneffect_core::{
    Blame, Consumer, Context, DeadLetterKind, Duplicate, Failure, Fingerprint, Handler,
    HandlerResult, Reply, RetrySchedule, Settled, Store, done, done_with, reject,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::bench::*;

#[derive(Clone, Deserialize)]
struct Question {
    event_id: String,
    /// What to answer.
    #[serde(default)]
    answer: Option<Answer>,
    #[serde(default)]
    staged: bool,
    #[serde(default)]
    slow: bool,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Json(u64),
    Bytes(usize),
    Unserialisable,
    Reject,
    Fail,
}

/// Answers questions, and writes down what it is told of those that come again.
#[derive(Clone, Debug, Default)]
struct Clerk {
    entered: Arc<Mutex<Vec<String>>>,
    told: Arc<Mutex<Vec<Told>>>,
    /// Told of its duplicates it panics.
    faint: bool,
    /// Whose units must not be open when it is told.
    store: MemoryStore,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    id: String,
    position: String,
    settled: Settled,
}

impl Clerk {
    fn of(store: &MemoryStore) -> Self {
        let store = store.clone();
        Self {
            store,
            ..Self::default()
        }
    }

    fn times(&self, id: &str) -> usize {
        let entered = self.entered.lock().unwrap();
        entered.iter().filter(|entered| *entered == id).count()
    }

    /// What it was told of an event, in order.
    fn told(&self, id: &str) -> Vec<Settled> {
        let told = self.told.lock().unwrap();
        let of_this = told.iter().filter(|told| told.id == id);
        of_this.map(|told| told.settled.clone()).collect()
    }

    fn told_where(&self) -> Vec<String> {
        let told = self.told.lock().unwrap();
        told.iter().map(|told| told.position.clone()).collect()
    }
}

impl<S: Store<Connection = MemoryConnection, Row = MemoryRow>> Handler<S> for Clerk {
    type Event = Question;

    async fn handle(&self, cx: &mut Context<'_, S>, question: Question) -> HandlerResult {
        let id = question.event_id.clone();
        self.entered.lock().unwrap().push(id.clone());
        if question.slow {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if question.staged {
            cx.stage(MemoryRow::new("effect", id));
        } else {
            cx.db().await?.append("effect", id).await?;
        }
        match question.answer {
            None => done(),
            Some(Answer::Json(amount)) => done_with(json!({ "amount": amount })),
            Some(Answer::Bytes(len)) => done_with(Reply::bytes(vec![b'x'; len])),
            Some(Answer::Unserialisable) => done_with(BTreeMap::from([((), ())])),
            Some(Answer::Reject) => reject("insufficient funds"),
            Some(Answer::Fail) => Err(Failure::new("not now")),
        }
    }

    fn on_duplicate(&self, duplicate: &Duplicate<'_>, settled: &Settled) {
        assert_eq!(self.store.open_units(), 0, "a transaction is open");
        self.told.lock().unwrap().push(Told {
            id: duplicate.event_key.to_string(),
            position: duplicate.delivery.position.to_string(),
            settled: settled.clone(),
        });
        assert!(!self.faint, "fainted");
    }
}

fn question(id: &str, answer: &Value) -> Message {
    Message::new(json!({ "event_id": id, "answer": answer }).to_string())
}

fn with_reply(reply: &'static str) -> Settled {
    Settled::Done {
        reply: Some(Bytes::from_static(reply.as_bytes())),
    }
}

fn rejected() -> Settled {
    Settled::Rejected {
        reason: "insufficient funds".into(),
    }
}

/// One worker, so that no unit is open while another's duplicates are told of.
fn consumer<S: Store<Connection = MemoryConnection, Row = MemoryRow>>(
    log: &MemoryLog,
    store: &S,
    clerk: &Clerk,
) -> Consumer<oneffect_core::testing::MemoryLogSource, S, Clerk> {
    Consumer::new("test", log.source(), store.clone(), clerk.clone())
        .workers(1)
        .retry(RetrySchedule::default().max_attempts(2))
}

/// The second half of field case 092: the digits come back as they were.
#[tokio::test(start_paused = true)]
async fn who_asks_again_gets_the_stored_reply_whoever_handled_the_first() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        let first = Clerk::of(&store);
        log.produce(
            0,
            question("x", &json!({ "json": 9_007_199_254_740_993_u64 })),
        );
        log.produce(0, question("empty", &json!({ "bytes": 0 })));
        log.produce(0, question("none", &json!(null)));
        log.produce(0, question("no", &json!("reject")));
        let running = start(consumer(&log, &store, &first));
        until_drained(&log, 1).await;
        running.stop().await.unwrap();
        assert_eq!(first.told_where(), [""; 0]);

        let second = Clerk::of(&store);
        for id in ["x", "empty", "none", "no", "x"] {
            // Its own answer would be another.
            log.produce(0, question(id, &json!({ "json": 1 })));
        }
        let running = start(consumer(&log, &store, &second));
        until_drained(&log, 1).await;
        let stats = running.stop().await.unwrap();

        let x = with_reply(r#"{"amount":9007199254740993}"#);
        assert_settled(&store, "x", x.clone());
        assert_eq!(second.told("x"), [x.clone(), x]);
        assert_eq!(second.told("empty"), [with_reply("")]);
        assert_eq!(second.told("none"), [DONE]);
        assert_eq!(second.told("no"), [rejected()]);
        let mut told_where = second.told_where();
        told_where.sort();
        assert_eq!(told_where, [4, 5, 6, 7, 8].map(|n| format!("t/0/{n}")));
        assert_eq!(second.times("x"), 0);
        assert_eq!((stats.duplicates, stats.applied), (5, 0));
        assert_once(&store, ["x", "empty", "none"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_their_first_are_answered_as_it_is() {
    for (answer, expected) in [
        (json!({ "json": 7 }), with_reply(r#"{"amount":7}"#)),
        (json!(null), DONE),
        (json!("reject"), rejected()),
        (json!("fail"), Settled::Dead),
        (json!({ "bytes": 1 << 20 }), Settled::Dead),
    ] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 4), MemoryStore::new());
            let clerk = Clerk::of(&store);
            let slow = json!({ "event_id": "x", "answer": answer, "slow": true });
            for partition in 0..4 {
                log.produce(partition, Message::new(slow.to_string()));
            }
            let running = start(consumer(&log, &store, &clerk));
            until_drained(&log, 4).await;
            let stats = running.stop().await.unwrap();

            assert_settled(&store, "x", expected.clone());
            assert_eq!(clerk.told("x"), vec![expected; 3]);
            assert_eq!(stats.duplicates, 3);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_is_told_nothing() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 3), MemoryStore::new());
        let clerk = Clerk::of(&store);
        log.produce(0, question("x", &json!({ "json": 7 })));
        for partition in 0..3 {
            log.produce(partition, question("x", &json!({ "json": 8 })));
        }
        let running = start(consumer(&log, &store, &clerk).fingerprint(Fingerprint::Payload));
        until_drained(&log, 3).await;
        let stats = running.stop().await.unwrap();

        assert_eq!((stats.duplicates, stats.mismatches), (0, 3));
        assert_eq!(clerk.told("x"), []);
        let letters = store.dead_letters();
        let [(letter, _)] = letters.as_slice() else {
            panic!("{letters:?}")
        };
        let became = "it took effect, with a reply of 12 bytes";
        assert!(letter.error.contains(became), "{}", letter.error);
    })
    .await;
}

/// No retry mends it, so there is none; what the handler wrote is undone, and its neighbours stay.
#[tokio::test(start_paused = true)]
async fn a_reply_that_cannot_be_stored_is_set_aside_at_once_and_its_writes_are_undone() {
    for (answer, says) in [
        (
            json!({ "bytes": 101 }),
            "the reply has 101 bytes, more than the 100",
        ),
        (json!("unserialisable"), "the reply cannot be serialised"),
    ] {
        for staged in [false, true] {
            let answer = answer.clone();
            locally(async move {
                let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
                let clerk = Clerk::of(&store);
                let neighbours: Vec<_> = (0..20).map(|n| format!("e{n}")).collect();
                for id in &neighbours {
                    log.produce(0, question(id, &json!({ "bytes": 100 })));
                }
                let bad = json!({ "event_id": "x", "answer": answer, "staged": staged });
                log.produce(0, Message::new(bad.to_string()));
                log.produce(0, question("last", &json!(null)));

                let running = start(consumer(&log, &store, &clerk).reply_limit(100));
                until_drained(&log, 1).await;
                let stats = running.stop().await.unwrap();

                assert_once(&store, neighbours.into_iter().chain(["last".into()]));
                assert_settled(&store, "x", Settled::Dead);
                assert_eq!((stats.dead_lettered, stats.attempts_charged), (1, 0));
                // Once more only where the database had to undo it.
                assert!(clerk.times("x") <= if staged { 1 } else { 2 });
                let letters = store.dead_letters();
                let [(letter, 1)] = letters.as_slice() else {
                    panic!("{letters:?}")
                };
                assert_eq!(letter.kind, DeadLetterKind::ReplyTooLarge);
                assert_eq!(letter.kind.as_str(), "reply_too_large");
                assert!(letter.error.starts_with(says), "{}", letter.error);
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_of_sixteen_kibibytes_is_stored_unless_the_consumer_says_otherwise() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        let clerk = Clerk::of(&store);
        let limit = 16 << 10;
        log.produce(0, question("fits", &json!({ "bytes": limit })));
        log.produce(0, question("large", &json!({ "bytes": limit + 1 })));
        let running = start(consumer(&log, &store, &clerk));
        until_drained(&log, 1).await;
        running.stop().await.unwrap();

        let reply = Some(vec![b'x'; limit].into());
        assert_settled(&store, "fits", Settled::Done { reply });
        assert_settled(&store, "large", Settled::Dead);
    })
    .await;
}

/// Invariant 3: the unit is indeterminate, and claiming again finds the reply.
#[tokio::test(start_paused = true)]
async fn a_reply_whose_commit_was_not_answered_is_told_when_it_is_claimed_again() {
    for (fault, told) in [(Fault::AfterCommit, 1), (Fault::LostBefore, 0)] {
        locally(async move {
            let (log, memory) = (MemoryLog::new("t", 1), MemoryStore::new());
            let (store, clerk) = (Unreliable::new(memory.clone()), Clerk::of(&memory));
            store.fail_next_commit(fault);
            log.produce(0, question("x", &json!({ "json": 7 })));
            let running = start(consumer(&log, &store, &clerk));
            until_drained(&log, 1).await;
            running.stop().await.unwrap();

            assert_once(&memory, ["x"]);
            let reply = with_reply(r#"{"amount":7}"#);
            assert_settled(&memory, "x", reply.clone());
            assert_eq!(clerk.told("x"), vec![reply; told]);
        })
        .await;
    }
}

/// Invariant 1: without its reply the effect is not there either.
#[tokio::test(start_paused = true)]
async fn a_reply_that_could_not_be_recorded_undoes_its_unit() {
    locally(async {
        let (log, memory) = (MemoryLog::new("t", 1), MemoryStore::new());
        let (store, clerk) = (Unreliable::new(memory.clone()), Clerk::of(&memory));
        store.fail_next(Call::Record, Blame::Outage);
        log.produce(0, question("x", &json!({ "json": 7 })));
        let running = start(consumer(&log, &store, &clerk));
        until_drained(&log, 1).await;
        running.stop().await.unwrap();

        assert_eq!(store.injected().len(), 1);
        assert_once(&memory, ["x"]);
        assert_settled(&memory, "x", with_reply(r#"{"amount":7}"#));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_that_is_delivered_again_is_told_of_again() {
    locally(async {
        let log = MemoryLog::with_commit_interval("t", 1, Duration::from_mins(1));
        let store = MemoryStore::new();
        log.produce(0, question("x", &json!({ "json": 7 })));
        for told in [0, 1, 1] {
            let clerk = Clerk::of(&store);
            let running = start(consumer(&log, &store, &clerk));
            let stats = running.stats.clone();
            until("it is settled", || stats.snapshot().settled() == 1).await;
            // Before the offset's commit.
            running.crash().await;
            assert_eq!(clerk.told("x").len(), told);
        }
        assert_once(&store, ["x"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_when_it_is_told_holds_up_nothing() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
        let clerk = Clerk {
            faint: true,
            ..Clerk::of(&store)
        };
        for partition in [0, 1, 0] {
            log.produce(partition, question("x", &json!({ "json": 7 })));
        }
        log.produce(0, question("y", &json!(null)));
        let running = start(consumer(&log, &store, &clerk));
        until_drained(&log, 2).await;
        let stats = running.stop().await.unwrap();

        assert_once(&store, ["x", "y"]);
        assert_eq!(stats.duplicates, 2);
        assert_eq!(clerk.told("x").len(), 2);
    })
    .await;
}
