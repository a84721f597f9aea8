//! `oneffect inbox` and `oneffect maintain`.

use oneffect_cli::Code;
use oneffect_core::{Begin, Claim, DaysFrom, EventId, EventKey, Store, Unit};

use super::{Operated, on_each_database, oneffect, oneffect_asked};

on_each_database! {
    the_inbox_is_shown_by_its_days,
    maintenance_says_what_it_did,
    a_shorter_window_is_asked_about,
}

async fn the_inbox_is_shown_by_its_days<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let store = database.store();
    let consumer = store.open("ledger", DaysFrom::Id).await.unwrap();
    store.open("mail", DaysFrom::Producer).await.unwrap();
    let mut unit = store.begin(Begin::new(consumer)).await.unwrap();
    let mut claims: Vec<_> = (0..10)
        .map(|_| Claim::new(EventKey::new(EventId::from(uuid::Uuid::now_v7()))))
        .collect();
    claims.push(Claim::new(EventKey::new(
        EventId::new("without-a-day").unwrap(),
    )));
    unit.claim(&claims).await.unwrap();
    unit.commit().await.unwrap();
    let failing = EventKey::new(EventId::new("failing").unwrap());
    let second = std::time::Duration::from_secs(1);
    store
        .charge(consumer, &failing, "boom", second)
        .await
        .unwrap();
    // What is estimated is known then; the second is there on PostgreSQL alone.
    database.execute("ANALYZE inbox").await.unwrap();
    let _ = database.execute("ANALYZE inbox_open").await;

    let json = oneffect(&database, &["inbox", "--json"]).await;
    let text = oneffect(&database, &["inbox"]).await;

    assert_eq!(json.code, Code::Fine, "{json:?}");
    let report = json.json();
    assert_eq!(report["window_days"], 8);
    assert_eq!(report["rows"], 11, "{report}");
    assert!(report["bytes"].as_u64().unwrap() >= 8192, "{report}");
    let today = report["today"].as_str().unwrap();
    assert!(report["floor"].as_str().unwrap() < today);
    let parts = report["parts"].as_array().unwrap();
    let of_today = |part: &&serde_json::Value| part["day"] == today;
    let rows: u64 = (parts.iter().filter(of_today))
        .map(|part| part["rows"].as_u64().unwrap())
        .sum();
    assert_eq!(rows, 11, "{report}");
    assert!(parts[0]["kind"].is_string());
    let consumers = report["consumers"].as_array().unwrap();
    assert_eq!(consumers[0]["name"], "ledger");
    assert_eq!(consumers[0]["days_from"], "id");
    assert_eq!(consumers[0]["failing"], 1);
    assert_eq!(consumers[0]["dead_letters"], 0);
    assert_eq!(consumers[1]["days_from"], "producer");
    for part in ["8 d", today, "about 11 rows", "ledger", "mail"] {
        assert!(text.out.contains(part), "{part} is missing:\n{}", text.out);
    }
}

async fn maintenance_says_what_it_did<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };

    let json = oneffect(&database, &["maintain", "--json"]).await;
    let text = oneffect(&database, &["maintain"]).await;

    assert_eq!(json.code, Code::Fine, "{json:?}");
    let done = json.json();
    let inbox = oneffect(&database, &["inbox", "--json"]).await.json();
    assert_eq!(done["floor"], inbox["floor"]);
    assert_eq!(done["window_days"], 8);
    assert_eq!(done["dropped"], 0);
    assert_eq!(done["doubled"], 0);
    assert!(done["created"].is_u64() && done["postponed"].is_boolean());
    assert_eq!(text.code, Code::Fine);
    assert!(
        text.out.contains(done["floor"].as_str().unwrap()),
        "{text:?}"
    );
}

async fn a_shorter_window_is_asked_about<D: Operated>() {
    let Some(database) = D::fresh().await else {
        return;
    };
    let window = async || {
        let inbox = oneffect(&database, &["inbox", "--json"]).await;
        inbox.json()["window_days"].as_u64().unwrap()
    };
    let set = |days| ["inbox", "--set-window", days];

    let longer = oneffect(&database, &set("15")).await;
    assert_eq!(longer.code, Code::Fine, "{longer:?}");
    assert!(longer.out.contains("15 d"), "{longer:?}");
    let alone = oneffect(&database, &set("3")).await;
    assert_eq!(alone.code, Code::Usage);
    assert!(alone.err.contains("--yes"), "{alone:?}");
    let declined = oneffect_asked(&database, &set("3"), "n\n").await;
    assert_eq!(declined.code, Code::Usage);
    assert_eq!(window().await, 15);

    let agreed = oneffect(&database, &[&set("3")[..], &["--yes"]].concat()).await;
    assert_eq!(agreed.code, Code::Fine, "{agreed:?}");
    assert_eq!(window().await, 3);
    for absurd in ["0", "3651"] {
        let none = oneffect(&database, &[&set(absurd)[..], &["--yes"]].concat()).await;
        assert_eq!(none.code, Code::Usage, "{none:?}");
        assert!(none.err.contains("1..=3650"), "{none:?}");
    }
    assert_eq!(window().await, 3);
}
