//! Whose event it is, and how its id is written.

use oneffect_core::testing::{MemoryLog, MemoryStore, Message};
use oneffect_core::{
    Consumer, DeadLetterKind, EventId, EventKey, IdFrom, RunError, Tenant, TenantFrom,
};

use super::bench::*;

fn of(tenant: &str, id: &str) -> Message {
    event(id, &[]).header("tenant", tenant.to_owned())
}

fn tenants_key(tenant: &str, id: &str) -> EventKey {
    EventKey {
        id: EventId::new(id).unwrap(),
        tenant: Tenant::new(tenant).unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn two_tenants_equal_ids_are_two_events_and_each_ones_repeats_are_duplicates() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
        for _ in 0..3 {
            for (partition, tenant) in [(0, "a"), (1, "b"), (0, "b"), (1, "a")] {
                log.produce(partition, of(tenant, "x"));
            }
        }
        // Parts that read the same when they stand side by side are other keys all the same.
        log.produce(0, of("a:", "b"));
        log.produce(0, of("a", ":b"));

        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .tenant(TenantFrom::header("tenant")),
        );
        until_drained(&log, 2).await;
        let stats = consumer.stop().await.unwrap();

        assert_eq!(effects(&store)["x"], 2);
        assert_eq!((stats.applied, stats.duplicates), (4, 10));
        let settled = [("a", "x"), ("b", "x"), ("a:", "b"), ("a", ":b")];
        for (tenant, id) in settled {
            let outcome = store.outcome("test", &tenants_key(tenant, id));
            assert_eq!(outcome, Some(DONE), "{tenant} {id}");
        }
        assert_eq!(store.inbox("test").len(), settled.len());
    })
    .await;
}

/// Field case 088: nothing is cut off silently, and nothing goes to the database to fail there.
#[tokio::test(start_paused = true)]
async fn a_key_that_is_too_long_is_set_aside_with_a_clear_error_and_the_next_event_is_handled() {
    locally(async {
        let (log, store) = (MemoryLog::new("t", 1), MemoryStore::new());
        let longest = "x".repeat(EventId::MAX_LEN);
        log.produce(0, of("a", &longest));
        log.produce(0, of("a", &"x".repeat(EventId::MAX_LEN + 1)));
        log.produce(0, of(&"t".repeat(Tenant::MAX_LEN + 1), "y"));
        log.produce(0, event("without a tenant", &[]));
        log.produce(0, of(&"t".repeat(Tenant::MAX_LEN), "good"));

        let consumer = start(
            Consumer::new("test", log.source(), store.clone(), Scripted::default())
                .tenant(TenantFrom::header("tenant")),
        );
        until_drained(&log, 1).await;
        let stats = consumer.stop().await.unwrap();

        assert_once(&store, [longest, "good".into()]);
        assert_eq!((stats.applied, stats.dead_lettered), (2, 3));
        let mut letters = store.dead_letters();
        letters.sort_by_key(|(letter, _)| letter.position.to_string());
        let errors = letters.iter().map(|(letter, _)| {
            assert_eq!((letter.kind, &letter.event), (DeadLetterKind::Poison, &None));
            letter.error.as_str()
        });
        let errors: Vec<_> = errors.collect();
        assert_eq!(
            errors,
            [
                "unusable event key\nthe event id has 1025 bytes, more than the 1024 that an index takes",
                "unusable event key\nthe tenant has 256 bytes, more than the 255 that an index takes beside an id",
                "no tenant: looked at header \"tenant\"",
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_forms_of_a_uuid_are_one_event_only_when_asked_for() {
    let forms = [
        "0190163d-8694-439b-aea5-966c26f8ad91",
        "0190163D-8694-439B-AEA5-966C26F8AD91",
        "{0190163d-8694-439b-aea5-966c26f8ad91}",
        "0190163d8694439baea5966c26f8ad91",
    ];
    for (from, applied) in [
        (IdFrom::default(), 4),
        (IdFrom::default().normalise_uuids(), 1),
    ] {
        locally(async move {
            let (log, store) = (MemoryLog::new("t", 2), MemoryStore::new());
            for (partition, form) in (0..2).cycle().zip(forms) {
                log.produce(partition, event(form, &[]));
            }

            let consumer = start(
                Consumer::new("test", log.source(), store.clone(), Scripted::default())
                    .event_id(from),
            );
            until_drained(&log, 2).await;
            let stats = consumer.stop().await.unwrap();

            assert_eq!((stats.applied, stats.duplicates), (applied, 4 - applied));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_beside_an_id_that_brings_its_own_is_refused_at_the_start() {
    let closure = IdFrom::closure(|_| Ok(EventKey::new(EventId::new("x")?)));
    for from in [IdFrom::cloud_event(), closure] {
        let log = MemoryLog::new("t", 1);
        let consumer = Consumer::new(
            "test",
            log.source(),
            MemoryStore::new(),
            Scripted::default(),
        );
        let run = consumer
            .event_id(from)
            .tenant(TenantFrom::topic())
            .run(std::future::pending());
        assert!(matches!(run.await, Err(RunError::Config(_))));
    }
}
