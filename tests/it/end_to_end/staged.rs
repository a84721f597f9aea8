//! Staged rows: collected over a batch, written at once, and undone one by one.

use oneffect::testing::{MemoryLog, Message};
use oneffect::{
    Consumer, Context, Failure, Handler, HandlerResult, Postgres, RetrySchedule, Sqlite, Store,
    done, reject,
};

use super::Running;
use super::databases::{Database, OnPostgres, OnSqlite};
use super::handler::{Event, Probe};
use crate::support::until;

/// A row of the table `effect`.
struct Effect {
    event_id: String,
}

oneffect::postgres_row!(Effect in "effect" { event_id });
oneffect::sqlite_row!(Effect in "effect" { event_id });

/// A parent and a child, in tables of which one refers to the other.
struct Account {
    id: String,
}

struct Entry {
    account: String,
    amount: i64,
    memo: Option<String>,
}

oneffect::postgres_row!(Account in "account" { id });
oneffect::postgres_row!(Entry in "entry" { account, amount, memo });

/// Only stages; what the event says, after that.
#[derive(Default)]
struct Stager(Probe);

impl<S: Store<Row: From<Effect>>> Handler<S> for Stager {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, S>, event: Event) -> HandlerResult {
        let nth = self.0.count(&event.event_id);
        cx.stage(Effect {
            event_id: event.event_id.clone(),
        });
        assert!(!event.panic || nth > event.fail, "the handler's own panic");
        if nth <= event.fail {
            return Err(Failure::new("not now"));
        }
        if event.reject {
            return reject("never");
        }
        done()
    }
}

fn message(event: &Event) -> Message {
    Message::new(serde_json::to_vec(event).unwrap())
}

/// What fails or is refused leaves nothing staged; its neighbours' rows are written.
async fn staged_rows_take_effect_once<D: Database>()
where
    <D::Store as Store>::Row: From<Effect>,
{
    let Some(database) = D::fresh().await else {
        return;
    };
    let log = MemoryLog::new("t", 1);
    for n in 0..1000 {
        let mut event = Event::new(format!("e{n}"));
        match n % 100 {
            17 => event.reject = true,
            31 => event.fail = 2,
            53 => (event.panic, event.fail) = (true, 1),
            _ => {}
        }
        log.produce(0, message(&event));
        if n % 5 == 0 {
            log.produce(0, message(&event));
        }
    }
    let consumer = Consumer::new("stager", log.source(), database.store(), Stager::default());
    let consumer = Running::run(consumer, Probe::default());
    until("all is settled", async || log.committed(0) == log.end(0)).await;
    let stats = consumer.stop().await;

    let effects = database.effects().await;
    assert_eq!((effects.len(), effects.values().max()), (990, Some(&1)));
    assert_eq!((stats.rejected, stats.second_runs), (10, 0), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_staged_for_postgres_take_effect_once() {
    staged_rows_take_effect_once::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_staged_for_sqlite_take_effect_once() {
    staged_rows_take_effect_once::<OnSqlite>().await;
}

/// Stages a child before its parent, or one that breaks a constraint.
struct Bookkeeper(Probe);

impl Handler<Postgres> for Bookkeeper {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, event: Event) -> HandlerResult {
        self.0.count(&event.event_id);
        let account = event.event_id;
        cx.stage(Entry {
            account: account.clone(),
            amount: if event.reject { -1 } else { 1 },
            memo: (account.len() > 3).then(|| "long".into()),
        });
        cx.stage(Account { id: account });
        done()
    }
}

/// Registered tables are written parents first; a row that breaks a constraint sets its own event
/// aside, and no other, and no handler is asked twice to find out whose it is.
#[tokio::test(flavor = "multi_thread")]
async fn parents_are_written_first_and_a_bad_row_is_its_own_events_fault() {
    let Some(database) = OnPostgres::fresh().await else {
        return;
    };
    sqlx::raw_sql(
        "CREATE TABLE account (id text PRIMARY KEY);
         CREATE TABLE entry (account text REFERENCES account, amount bigint CHECK (amount > 0), memo text)",
    )
    .execute(&database.pool)
    .await
    .unwrap();
    let log = MemoryLog::new("t", 1);
    for n in 0..200 {
        let mut event = Event::new(format!("e{n}"));
        event.reject = n == 77; // here: a row that the table refuses
        log.produce(0, message(&event));
    }
    let store = database.store().stages::<Account>().stages::<Entry>();
    let schedule = RetrySchedule::default()
        .base(std::time::Duration::from_millis(1))
        .max_attempts(2);
    let probe = Probe::default();
    let consumer = Consumer::new("books", log.source(), store, Bookkeeper(probe.clone()))
        .lanes(oneffect::Lanes::Unordered)
        .retry(schedule);
    let consumer = Running::run(consumer, probe.clone());
    until("all is settled", async || log.committed(0) == log.end(0)).await;
    let stats = consumer.stop().await;

    let count = "SELECT count(*) FROM entry JOIN account ON account.id = entry.account";
    let entries: i64 = sqlx::query_scalar(count)
        .fetch_one(&database.pool)
        .await
        .unwrap();
    assert_eq!((entries, stats.dead_lettered), (199, 1), "{stats:?}");
    assert_eq!(database.dead_letters().await.get("exhausted"), Some(&1));
    for n in 0..200 {
        let times = probe.times(&format!("e{n}"));
        assert_eq!(times, if n == 77 { 3 } else { 1 }, "e{n}");
    }
}

/// Withdraws from one account if its balance allows: reads by SQL, writes by staging.
struct Teller;

impl Handler<Postgres> for Teller {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, _: Event) -> HandlerResult {
        let sum = "SELECT coalesce(sum(amount), 0)::bigint FROM entry";
        let balance: i64 = sqlx::query_scalar(sum).fetch_one(cx.db().await?).await?;
        if balance < 1 {
            return reject("insufficient funds");
        }
        cx.stage(Entry {
            account: "a".into(),
            amount: -1,
            memo: None,
        });
        done()
    }
}

/// SQL sees every earlier event of the batch: 500 withdrawals of an account with 100 never overdraw.
#[tokio::test(flavor = "multi_thread")]
async fn staging_keeps_the_meaning_of_one_event_after_the_other() {
    let Some(database) = OnPostgres::fresh().await else {
        return;
    };
    sqlx::raw_sql(
        "CREATE TABLE entry (account text, amount bigint, memo text);
         INSERT INTO entry VALUES ('a', 100)",
    )
    .execute(&database.pool)
    .await
    .unwrap();
    let log = MemoryLog::new("t", 1);
    for n in 0..500 {
        log.produce(0, message(&Event::new(format!("e{n}"))));
    }
    let consumer = Consumer::new("teller", log.source(), database.store(), Teller);
    let consumer = Running::run(consumer, Probe::default());
    until("all is settled", async || log.committed(0) == log.end(0)).await;
    let stats = consumer.stop().await;

    let sum = "SELECT sum(amount)::bigint FROM entry";
    let balance: i64 = sqlx::query_scalar(sum)
        .fetch_one(&database.pool)
        .await
        .unwrap();
    assert_eq!((balance, stats.applied, stats.rejected), (0, 100, 400));
}

/// The same on SQLite, where only the shape differs.
#[allow(dead_code, reason = "that it compiles is the test")]
fn a_handler_may_be_written_for_one_store(consumer: Consumer<oneffect::Kafka, Sqlite, Stager>) {
    drop(consumer);
}
