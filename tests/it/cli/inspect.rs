//! `oneffect inspect`.

use std::time::Duration;

use bytes::Bytes;
use oneffect_cli::Code;
use oneffect_core::{
    AssignmentId, Begin, Claim, ConsumerId, DaysFrom, DeadLetter, DeadLetterKind, Delivery,
    EventId, EventKey, Fingerprint, Position, Settled, Store, Tenant, Unit,
};

use super::{Operated, on_each_database, oneffect};

on_each_database! {
    a_settled_event_is_shown_with_its_reply,
    a_rejected_event_is_shown_with_its_reason,
    failed_attempts_and_dead_letters_are_shown,
    each_consumer_and_tenant_that_knows_an_id_has_a_line,
    an_event_that_nobody_knows_is_not_found,
    ids_are_looked_up_byte_by_byte,
    an_inbox_that_is_not_there_says_how_to_make_one,
}

fn key(id: &str, tenant: &str) -> EventKey {
    EventKey {
        id: EventId::new(id).unwrap(),
        tenant: Tenant::new(tenant).unwrap(),
    }
}

async fn open<D: Operated>(database: &D, consumer: &str) -> ConsumerId {
    database.store().open(consumer, DaysFrom::Id).await.unwrap()
}

/// Settles an event of the payload `{}`, whose fingerprint is taken.
async fn settle<D: Operated>(database: &D, consumer: ConsumerId, key: EventKey, settled: Settled) {
    let mut unit = database.store().begin(Begin::new(consumer)).await.unwrap();
    let fingerprint = Fingerprint::Payload.of(Some(b"{}"));
    let claim = Claim::new(key.clone()).with_fingerprint(fingerprint);
    unit.claim(&[claim]).await.unwrap();
    unit.record(&[(key, settled)]).await.unwrap();
    unit.commit().await.unwrap();
}

fn done(reply: &'static [u8]) -> Settled {
    Settled::Done {
        reply: Some(Bytes::from_static(reply)),
    }
}

/// Of 2026-12-01.
const UUID: &str = "019ad9f0-1000-7000-8000-000000000001";

async fn a_settled_event_is_shown_with_its_reply<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let consumer = open(&database, "ledger").await;
    let id = uuid::Uuid::now_v7().to_string();
    settle(
        &database,
        consumer,
        key(&id, ""),
        done(br#"{"balance":12}"#),
    )
    .await;
    settle(&database, consumer, key("x", ""), done(&[0xff, 0x00])).await;

    let own_day = oneffect(&database, &["inspect", &id, "--json"]).await;
    let open_period = oneffect(&database, &["inspect", "x", "--json"]).await;
    let text = oneffect(&database, &["inspect", &id]).await;

    let record = own_day.json();
    assert_eq!(own_day.code, Code::Fine);
    assert_eq!(record["consumer"], "ledger");
    assert_eq!(record["tenant"], "");
    assert_eq!(record["event_id"], id);
    assert!(record["own_day"].is_string(), "{record}");
    let settled = &record["settled"][0];
    assert_eq!(settled["outcome"], "done");
    assert_eq!(settled["reason"], serde_json::Value::Null);
    assert_eq!(settled["reply"]["text"], r#"{"balance":12}"#);
    assert_eq!(settled["reply"]["len"], 14);
    let fingerprint = settled["fingerprint"].as_str().unwrap();
    assert!(fingerprint.starts_with("payload:"), "{fingerprint}");
    assert!(settled["recorded_at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(settled["day"], record["own_day"]);
    assert!(settled["open_period"].is_null());
    assert!(record["failed"].is_null());
    assert_eq!(record["dead_letters"], serde_json::json!([]));

    let record = open_period.json();
    assert!(record["own_day"].is_null());
    assert!(record["settled"][0]["open_period"].is_string(), "{record}");
    assert_eq!(record["settled"][0]["reply"]["hex"], "ff00");

    for part in [
        "ledger",
        &id,
        "done",
        r#"{"balance":12} (14 bytes)"#,
        fingerprint,
    ] {
        assert!(text.out.contains(part), "{part} is missing:\n{}", text.out);
    }
    assert!(!text.out.contains('\u{1b}'), "no colours but on a terminal");
}

async fn a_rejected_event_is_shown_with_its_reason<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let consumer = open(&database, "ledger").await;
    let reason = "no\u{1b}[2J money".into();
    settle(
        &database,
        consumer,
        key("x", ""),
        Settled::Rejected { reason },
    )
    .await;

    let json = oneffect(&database, &["inspect", "x", "--json"]).await;
    let text = oneffect(&database, &["inspect", "x"]).await;

    assert_eq!(json.json()["settled"][0]["outcome"], "rejected");
    assert_eq!(json.json()["settled"][0]["reason"], "no\u{1b}[2J money");
    assert!(text.out.contains("no\\u{1b}[2J money"), "{}", text.out);
}

async fn failed_attempts_and_dead_letters_are_shown<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let store = database.store();
    let consumer = open(&database, "ledger").await;
    let (event, wait) = (key("x", "acme"), Duration::from_mins(1));
    store.charge(consumer, &event, "first", wait).await.unwrap();
    store
        .charge(consumer, &event, "second\nbecause", wait)
        .await
        .unwrap();
    let position = Position::Log {
        topic: "transfers".into(),
        partition: 3,
        offset: 1234,
    };
    let delivery = Delivery::new(
        position,
        AssignmentId(1),
        0,
        Some(Bytes::from_static(b"{}")),
    );
    let kind = DeadLetterKind::Exhausted;
    let letter = DeadLetter::new(&delivery, Some(event), kind, 14, "boom\nbecause of it");
    for _ in 0..2 {
        let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
        unit.claim(&[]).await.unwrap();
        unit.set_aside(std::slice::from_ref(&letter)).await.unwrap();
        unit.commit().await.unwrap();
    }

    let record = oneffect(&database, &["inspect", "x", "--json"])
        .await
        .json();
    let text = oneffect(&database, &["inspect", "x"]).await;

    assert_eq!(record["tenant"], "acme");
    assert_eq!(record["settled"], serde_json::json!([]));
    assert_eq!(record["failed"]["attempts"], 2);
    assert_eq!(record["failed"]["last_error"], "second\nbecause");
    assert!(record["failed"]["next_attempt_at"].is_string());
    let letter = &record["dead_letters"][0];
    assert_eq!(letter["kind"], "exhausted");
    assert_eq!(letter["position"], "transfers/3/1234");
    assert_eq!(letter["deliveries"], 2);
    assert_eq!(letter["attempts"], 14);
    assert_eq!(letter["error"], "boom\nbecause of it");
    assert!(letter["id"].is_i64());
    for part in [
        "acme",
        "not settled",
        "second",
        "exhausted",
        "transfers/3/1234",
        "boom",
    ] {
        assert!(text.out.contains(part), "{part} is missing:\n{}", text.out);
    }
}

async fn each_consumer_and_tenant_that_knows_an_id_has_a_line<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let (ledger, mail) = (
        open(&database, "ledger").await,
        open(&database, "mail").await,
    );
    for (consumer, tenant) in [(mail, ""), (ledger, "b"), (ledger, "a")] {
        settle(&database, consumer, key("x", tenant), Settled::Dead).await;
    }
    let found = async |options: &[&str]| {
        let ran = oneffect(&database, &[&["inspect", "x", "--json"], options].concat()).await;
        let lines = ran.lines().into_iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let found = lines.map(|line| (text(&line["consumer"]), text(&line["tenant"])));
        (ran.code, found.collect::<Vec<_>>())
    };
    let pair = |consumer: &str, tenant: &str| (consumer.to_owned(), tenant.to_owned());

    let all = [pair("ledger", "a"), pair("ledger", "b"), pair("mail", "")];
    assert_eq!(found(&[]).await, (Code::Fine, all.to_vec()));
    let (code, one) = found(&["--consumer", "ledger", "--tenant", "b"]).await;
    assert_eq!((code, one), (Code::Fine, vec![pair("ledger", "b")]));
    let (code, one) = found(&["--tenant", ""]).await;
    assert_eq!((code, one), (Code::Fine, vec![pair("mail", "")]));
    assert_eq!(found(&["--tenant", "c"]).await, (Code::NotFound, vec![]));
}

async fn an_event_that_nobody_knows_is_not_found<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };

    let ran = oneffect(&database, &["inspect", "never-seen"]).await;

    assert_eq!(ran.code, Code::NotFound);
    assert_eq!(ran.out, "");
    assert!(ran.err.contains("never-seen"), "{ran:?}");
}

/// Field case 094, and UUIDs in another form.
async fn ids_are_looked_up_byte_by_byte<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let consumer = open(&database, "ledger").await;
    let upper = UUID.to_uppercase();
    settle(&database, consumer, key("caf\u{e9}", ""), Settled::Dead).await;
    settle(&database, consumer, key(&upper, ""), Settled::Dead).await;

    let composed = oneffect(&database, &["inspect", "caf\u{e9}"]).await;
    let decomposed = oneffect(&database, &["inspect", "cafe\u{301}"]).await;
    let lower = oneffect(&database, &["inspect", UUID]).await;

    assert_eq!(composed.code, Code::Fine);
    assert_eq!(decomposed.code, Code::NotFound);
    assert_eq!(lower.code, Code::NotFound);
    assert!(lower.err.contains(&upper), "{lower:?}");
}

async fn an_inbox_that_is_not_there_says_how_to_make_one<D: Operated>() {
    let Some(database) = D::unmigrated().await else {
        return;
    };

    let ran = oneffect(&database, &["inspect", "x"]).await;

    assert_eq!(ran.code, Code::Failed);
    assert!(ran.err.contains("oneffect migrate up"), "{ran:?}");
}
