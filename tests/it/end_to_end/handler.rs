//! A handler that does what its event says, and one row for each effect.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneffect::{Context, Failure, Handler, HandlerResult, Postgres, Sqlite, done, reject};
use serde::{Deserialize, Serialize};

/// What the tests send.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Event {
    pub(crate) event_id: String,
    /// How often the handler fails for it, in each process, before it has its effect.
    #[serde(default)]
    pub(crate) fail: u32,
    #[serde(default)]
    pub(crate) panic: bool,
    #[serde(default)]
    pub(crate) reject: bool,
    /// A statement that fails, whose error the handler ignores, so many times.
    #[serde(default)]
    pub(crate) swallow: u32,
    #[serde(default)]
    pub(crate) delay_ms: u64,
    /// Takes the whole process along.
    #[serde(default)]
    pub(crate) abort: bool,
}

impl Event {
    pub(crate) fn new(id: impl Into<String>) -> Self {
        Self {
            event_id: id.into(),
            ..Self::default()
        }
    }
}

/// Counts how often it is entered for each event, N(id).
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    entered: Arc<Mutex<HashMap<String, u32>>>,
    delay: Duration,
}

impl Probe {
    pub(crate) fn with_delay(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    pub(crate) fn times(&self, id: &str) -> u32 {
        self.entered.lock().unwrap().get(id).copied().unwrap_or(0)
    }

    /// Counts one more time for an event, and tells which it is.
    pub(crate) fn count(&self, id: &str) -> u32 {
        let mut entered = self.entered.lock().unwrap();
        let nth = entered.entry(id.to_owned()).or_default();
        *nth += 1;
        *nth
    }

    /// What comes before the effect.
    async fn enter(&self, event: &Event) -> Result<u32, Failure> {
        let nth = self.count(&event.event_id);
        tokio::time::sleep(self.delay + Duration::from_millis(event.delay_ms)).await;
        if event.abort {
            std::process::abort();
        }
        Ok(nth)
    }

    /// What comes after it.
    fn leave(event: &Event, nth: u32) -> HandlerResult {
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

impl Handler<Postgres> for Probe {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, Postgres>, event: Event) -> HandlerResult {
        let nth = self.enter(&event).await?;
        sqlx::query("INSERT INTO effect (event_id) VALUES ($1)")
            .bind(&event.event_id)
            .execute(cx.db().await?)
            .await?;
        if nth <= event.swallow {
            let bad = sqlx::query("SELECT 1 / 0").execute(cx.db().await?).await;
            assert!(bad.is_err());
            return done();
        }
        Self::leave(&event, nth)
    }
}

impl Handler<Sqlite> for Probe {
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, Sqlite>, event: Event) -> HandlerResult {
        let nth = self.enter(&event).await?;
        sqlx::query("INSERT INTO effect (event_id) VALUES (?1)")
            .bind(&event.event_id)
            .execute(cx.db().await?)
            .await?;
        Self::leave(&event, nth)
    }
}
