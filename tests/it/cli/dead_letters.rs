//! `oneffect dead-letters`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use oneffect_cli::Code;
use oneffect_core::testing::MemoryLog;
use oneffect_core::{
    AssignmentId, Begin, Claim, Consumer, ConsumerId, Context, DaysFrom, DeadLetter,
    DeadLetterKind, DeadLetters, Delivery, EventId, EventKey, Fingerprint, Handler, HandlerResult,
    Headers, LetterFilter, LetterId, Position, Raw, Settled, Store, Unit, done,
};
use serde_json::{Value, json};
use tokio::join;
use tokio_util::sync::CancellationToken;

use super::{Operated, on_each_database, oneffect, oneffect_asked};

on_each_database! {
    letters_are_listed_and_found,
    a_letter_is_shown_whole,
    a_redrive_is_marked_for_the_consumers,
    of_many_letters_a_redrive_is_asked_about,
    whoever_waits_is_told_how_a_redrive_ended,
    a_running_consumer_does_what_the_command_asks_for,
    discarding_asks_and_names_what_it_deletes,
    nothing_is_meant_by_saying_nothing,
}

async fn open<D: Operated>(database: &D, consumer: &str) -> ConsumerId {
    database.store().open(consumer, DaysFrom::Id).await.unwrap()
}

fn delivery(offset: i64, payload: &'static [u8]) -> Delivery {
    let position = Position::Log {
        topic: "transfers".into(),
        partition: 3,
        offset,
    };
    let payload = Some(Bytes::from_static(payload));
    let mut delivery = Delivery::new(position, AssignmentId(1), 0, payload);
    delivery.key = Some(Bytes::from_static(b"account-7"));
    delivery.headers = [("trace", "00-4bf9"), ("trace", "again")]
        .into_iter()
        .collect();
    delivery
}

fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).unwrap())
}

async fn set_aside<D: Operated>(database: &D, consumer: ConsumerId, letter: DeadLetter) {
    let mut unit = database.store().begin(Begin::new(consumer)).await.unwrap();
    if let Some(event) = letter.event.clone() {
        unit.claim(&[Claim::new(event.clone())]).await.unwrap();
        unit.record(&[(event, Settled::Dead)]).await.unwrap();
    } else {
        unit.claim(&[]).await.unwrap();
    }
    unit.set_aside(&[letter]).await.unwrap();
    unit.commit().await.unwrap();
}

/// Two of "ledger", exhausted and poison, and one of "mail"; their numbers.
async fn three_letters<D: Operated>(database: &D) -> [String; 3] {
    let (ledger, mail) = (open(database, "ledger").await, open(database, "mail").await);
    let exhausted = DeadLetterKind::Exhausted;
    let delivery = |offset| delivery(offset, br#"{"amount":5}"#);
    let refused = "boom\nConnection refused";
    let letter = DeadLetter::new(&delivery(1), Some(key("one")), exhausted, 14, refused);
    set_aside(database, ledger, letter).await;
    let letter = DeadLetter::new(&delivery(2), None, DeadLetterKind::Poison, 0, "no event id");
    set_aside(database, ledger, letter).await;
    let letter = DeadLetter::new(&delivery(3), Some(key("two")), exhausted, 14, "boom");
    set_aside(database, mail, letter).await;
    let all = ids(database, &[]).await;
    all.try_into().unwrap()
}

async fn list<D: Operated>(database: &D, filter: &[&str]) -> Vec<Value> {
    let command = [&["dead-letters", "list", "--json"], filter].concat();
    let ran = oneffect(database, &command).await;
    assert_eq!(ran.code, Code::Fine, "{ran:?}");
    ran.lines()
}

async fn ids<D: Operated>(database: &D, filter: &[&str]) -> Vec<String> {
    let letters = list(database, filter).await;
    letters
        .iter()
        .map(|letter| letter["id"].to_string())
        .collect()
}

async fn letters_are_listed_and_found<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let empty = oneffect(&database, &["dead-letters", "list"]).await;
    assert_eq!((empty.code, &*empty.out), (Code::Fine, "no dead letters\n"));
    let [one, two, three] = three_letters(&database).await;

    let letter = list(&database, &["--event-id", "one"]).await.remove(0);
    assert_eq!(letter["consumer"], "ledger");
    assert_eq!(letter["kind"], "exhausted");
    assert_eq!(letter["event_id"], "one");
    assert_eq!(letter["tenant"], "");
    assert_eq!(letter["position"], "transfers/3/1");
    assert_eq!(letter["key"], json!({"len": 9, "text": "account-7"}));
    assert_eq!(letter["payload_len"], 12);
    assert_eq!(letter["cut"], false);
    assert_eq!(letter["attempts"], 14);
    assert_eq!(letter["deliveries"], 1);
    assert_eq!(letter["error"], "boom\nConnection refused");
    assert_eq!(letter["redrive"], Value::Null);

    for (filter, found) in [
        (&[][..], vec![&one, &two, &three]),
        (&["--consumer", "ledger"], vec![&one, &two]),
        (&["--kind", "poison"], vec![&two]),
        (
            &["--kind", "poison", "--kind", "exhausted"],
            vec![&one, &two, &three],
        ),
        (&["--error", "connection REFUSED"], vec![&one]),
        (&["--key", "account-7", "--consumer", "mail"], vec![&three]),
        (&["--source", "other"], vec![]),
        (&["--since", "2020-01-01", "--until", "2020-01-02"], vec![]),
        (
            &["--since", "2020-01-01T00:00:00+01:00"],
            vec![&one, &two, &three],
        ),
        (&["--tenant", ""], vec![&one, &three]),
        (&["--limit", "1"], vec![&one]),
        (&["--limit", "1", "--after", &*one], vec![&two]),
        (&[&*one, &*three], vec![&one, &three]),
    ] {
        assert_eq!(
            ids(&database, filter).await.iter().collect::<Vec<_>>(),
            found,
            "{filter:?}"
        );
    }

    let text = oneffect(&database, &["dead-letters", "list", "--limit", "2"]).await;
    for part in [
        "transfers/3/1",
        "exhausted",
        "ledger",
        "boom",
        "no event id",
    ] {
        assert!(text.out.contains(part), "{part} is missing:\n{}", text.out);
    }
    assert!(text.err.contains(&format!("--after {two}")), "{text:?}");
}

async fn a_letter_is_shown_whole<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let consumer = open(&database, "ledger").await;
    let mut delivery = delivery(1, b"\xff{\x1b[2J}");
    delivery.headers = Headers::default();
    delivery.headers.push("a", Some(Bytes::from_static(b"1")));
    delivery.headers.push("a", None);
    let of = |content: &[u8]| Fingerprint::Payload.of(Some(content)).unwrap();
    let settled = Settled::Done { reply: None };
    let letter = DeadLetter::mismatch(&delivery, key("one"), of(b"1"), of(b"2"), &settled);
    set_aside(&database, consumer, letter).await;
    let [id] = &ids(&database, &[]).await[..] else {
        panic!()
    };

    let shown = oneffect(&database, &["dead-letters", "show", id, "--json"])
        .await
        .json();
    let text = oneffect(&database, &["dead-letters", "show", id]).await;
    let missing = oneffect(&database, &["dead-letters", "show", "4711"]).await;

    assert_eq!(shown["kind"], "mismatch");
    assert_eq!(shown["payload"], json!({"len": 7, "hex": "ff7b1b5b324a7d"}));
    assert_eq!(
        shown["headers"],
        json!([["a", {"len": 1, "text": "1"}], ["a", null]])
    );
    assert_eq!(shown["fingerprint"], of(b"1").to_string());
    assert_eq!(shown["settled_fingerprint"], of(b"2").to_string());
    assert_eq!(shown["cut"], Value::Null);
    for part in ["mismatch", "one", "hex ff7b", "7 bytes", "a: 1", "a: null"] {
        assert!(text.out.contains(part), "{part} is missing:\n{}", text.out);
    }
    assert_eq!(missing.code, Code::NotFound);
    assert!(missing.err.contains("dead-letters list"), "{missing:?}");
}

async fn a_redrive_is_marked_for_the_consumers<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let [one, _, _] = three_letters(&database).await;

    let redrive = oneffect(&database, &["dead-letters", "redrive", &one, "--json"]).await;
    assert_eq!(redrive.code, Code::Fine, "{redrive:?}");
    assert_eq!(redrive.json(), json!({"requested": 1, "refused": []}));
    let request = list(&database, &[&one]).await[0]["redrive"].clone();
    assert_eq!(request["as_new"], false);
    assert_eq!(request["attempts"], 0);
    assert!(request["requested_at"].is_string() && request["due_at"].is_string());
    let inspected = oneffect(&database, &["inspect", "one"]).await;
    assert!(inspected.out.contains("to be redriven"), "{inspected:?}");

    let cancel = ["dead-letters", "redrive", &one, "--cancel", "--json"];
    let cancelled = oneffect(&database, &cancel).await;
    assert_eq!(cancelled.json(), json!({"cancelled": 1}));
    assert_eq!(list(&database, &[&one]).await[0]["redrive"], Value::Null);
}

async fn of_many_letters_a_redrive_is_asked_about<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let [one, _, _] = three_letters(&database).await;
    let marked = async || {
        let letters = list(&database, &[]).await;
        letters
            .iter()
            .filter(|letter| !letter["redrive"].is_null())
            .count()
    };
    let redrive = ["dead-letters", "redrive", "--consumer", "ledger"];

    let alone = oneffect(&database, &redrive).await;
    assert_eq!(alone.code, Code::Usage);
    assert!(
        alone.err.contains("2 dead letters") && alone.err.contains("--yes"),
        "{alone:?}"
    );
    let declined = oneffect_asked(&database, &redrive, "n\n").await;
    assert_eq!(declined.code, Code::Usage);
    let as_new = oneffect(&database, &["dead-letters", "redrive", &one, "--as-new"]).await;
    assert_eq!(as_new.code, Code::Usage, "{as_new:?}");
    assert_eq!(marked().await, 0);

    let agreed = oneffect_asked(&database, &redrive, "y\n").await;
    assert_eq!(agreed.code, Code::Fine, "{agreed:?}");
    assert_eq!(marked().await, 2);
    let all = oneffect(&database, &["dead-letters", "redrive", "--all", "--yes"]).await;
    assert_eq!(all.code, Code::Fine, "{all:?}");
    assert_eq!(marked().await, 3);
}

async fn whoever_waits_is_told_how_a_redrive_ended<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let [one, _, three] = three_letters(&database).await;
    let store = database.store();
    let id = |text: &str| LetterId(text.parse().unwrap());

    let redrive = ["dead-letters", "redrive", &one, &three, "--wait", "--json"];
    let consumers = async {
        // What consumers leave of one that succeeded, and of one that did not.
        crate::support::until("both are marked", async || {
            let letters = store.list_letters(&LetterFilter::default()).await.unwrap();
            letters
                .iter()
                .filter(|letter| letter.redrive.is_some())
                .count()
                == 2
        })
        .await;
        store
            .discard_letters(&LetterFilter::one(id(&one)))
            .await
            .unwrap();
        store
            .redrive_failed(id(&three), "again", None)
            .await
            .unwrap();
    };
    let (ran, ()) = join!(oneffect(&database, &redrive), consumers);

    assert_eq!(ran.code, Code::Problems, "{ran:?}");
    let ended = ran.json();
    assert_eq!(ended["requested"], 2);
    assert_eq!(ended["redriven"], 1);
    assert_eq!(ended["failed"].to_string(), format!("[{three}]"));
}

/// Handles everything, and counts.
struct Counts(Arc<AtomicU32>);

impl<S: Store> Handler<S> for Counts {
    type Event = Raw;

    async fn handle(&self, _cx: &mut Context<'_, S>, _event: Raw) -> HandlerResult {
        self.0.fetch_add(1, Ordering::Relaxed);
        done()
    }
}

async fn a_running_consumer_does_what_the_command_asks_for<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let [one, two, _] = three_letters(&database).await;
    let handled = Arc::new(AtomicU32::new(0));
    let stop = CancellationToken::new();
    let source = MemoryLog::new("transfers", 4).source();
    let counts = Counts(Arc::clone(&handled));
    let consumer = Consumer::new("ledger", source, database.store(), counts);

    let redrive = async {
        let redrive = ["dead-letters", "redrive", &one, "--wait", "--json"];
        let ran = oneffect(&database, &redrive).await;
        stop.cancel();
        ran
    };
    let (stats, ran) = join!(consumer.run(stop.cancelled()), redrive);

    stats.unwrap();
    assert_eq!(ran.code, Code::Fine, "{ran:?}");
    assert_eq!(ran.json()["redriven"], 1);
    assert_eq!(handled.load(Ordering::Relaxed), 1);
    let record = oneffect(&database, &["inspect", "one", "--json"])
        .await
        .json();
    assert_eq!(record["settled"][0]["outcome"], "done");
    assert_eq!(record["dead_letters"], json!([]));
    assert_eq!(ids(&database, &["--consumer", "ledger"]).await, [two]);
}

async fn discarding_asks_and_names_what_it_deletes<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let [one, two, three] = three_letters(&database).await;
    let discard = ["dead-letters", "discard", &one];

    let alone = oneffect(&database, &discard).await;
    assert_eq!(alone.code, Code::Usage);
    assert!(
        alone.err.contains("1 dead letter ") && alone.err.contains("--yes"),
        "{alone:?}"
    );
    let declined = oneffect_asked(&database, &discard, "no\n").await;
    assert_eq!(declined.code, Code::Usage);
    let half = ["dead-letters", "discard", &one, "4711", "--yes"];
    let half = oneffect(&database, &half).await;
    assert_eq!(
        half.code,
        Code::NotFound,
        "one of them is not there: {half:?}"
    );
    assert!(half.err.contains("4711"), "{half:?}");
    assert_eq!(ids(&database, &[]).await.len(), 3);

    let agreed = oneffect_asked(&database, &discard, "yes\n").await;
    assert_eq!(agreed.code, Code::Fine, "{agreed:?}");
    assert_eq!(ids(&database, &[]).await, [&*two, &*three]);
    let kind = [
        "dead-letters",
        "discard",
        "--kind",
        "exhausted",
        "--yes",
        "--json",
    ];
    assert_eq!(
        oneffect(&database, &kind).await.json(),
        json!({"discarded": 1})
    );
    assert_eq!(ids(&database, &[]).await, [two]);
    let none = oneffect(&database, &kind).await;
    assert_eq!(none.code, Code::NotFound);
}

/// An empty filter finds everything, which nobody means by saying nothing.
async fn nothing_is_meant_by_saying_nothing<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    three_letters(&database).await;

    for command in ["discard", "redrive"] {
        let ran = oneffect(&database, &["dead-letters", command, "--yes"]).await;
        assert_eq!(ran.code, Code::Usage, "{ran:?}");
        assert!(ran.err.contains("--all"), "{ran:?}");
    }
    let letters = list(&database, &[]).await;
    assert_eq!(letters.len(), 3);
    assert!(letters.iter().all(|letter| letter["redrive"].is_null()));
}
