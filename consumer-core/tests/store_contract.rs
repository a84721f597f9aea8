//! The store in memory passes the suite of the real ones.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::error::Error;
use std::time::SystemTime;

use oneffect_core::testing::store_contract::{Ending, Fixture, StoredLetter};
use oneffect_core::testing::{MemoryConnection, MemoryError, MemoryStore};

struct InMemory(MemoryStore);

impl Fixture for InMemory {
    type Store = MemoryStore;
    const CONCURRENT_UNITS: bool = true;
    const ABORTS_ON_ERROR: bool = true;

    async fn fresh() -> Option<Self> {
        Some(Self(MemoryStore::new()))
    }

    fn store(&self) -> MemoryStore {
        self.0.clone()
    }

    async fn write_effect(connection: &mut MemoryConnection, effect: &str) {
        connection.append("effect", effect).await.unwrap();
    }

    async fn effects(&self) -> Vec<String> {
        self.0.rows("effect")
    }

    async fn fail_statement(connection: &mut MemoryConnection) -> Box<dyn Error + Send + Sync> {
        let error = MemoryError::BadValue("seven".into());
        connection.fail(error).await.unwrap_err().into()
    }

    async fn end_transaction(connection: &mut MemoryConnection, how: Ending) {
        match how {
            // This store knows no second transaction on a connection.
            Ending::Commit | Ending::CommitAndBegin => connection.end_with_commit().await.unwrap(),
            Ending::Rollback => connection.end_with_rollback().await.unwrap(),
        }
    }

    async fn dead_letters(&self) -> Vec<StoredLetter> {
        let letters = self.0.dead_letters().into_iter();
        let stored = letters.map(|(letter, deliveries)| StoredLetter {
            kind: letter.kind.as_str().into(),
            source: letter.position.source().into(),
            event: letter.event,
            key: letter.key,
            payload: letter.payload,
            headers: letter.headers,
            published_at: (letter.published_at).and_then(|at| {
                let since = at.duration_since(SystemTime::UNIX_EPOCH);
                Some(since.ok()?.as_secs())
            }),
            attempts: letter.attempts,
            error: letter.error,
            deliveries,
        });
        stored.collect()
    }

    async fn idle_in_transaction(&self) -> usize {
        self.0.open_units()
    }

    async fn set_clock(&self, now: SystemTime) {
        self.0.set_now(now);
    }

    async fn remembered(&self) -> usize {
        self.0.inbox("ledger").len()
    }
}

oneffect_core::store_contract!(InMemory, (start_paused = true));
oneffect_core::days_contract!(InMemory, (start_paused = true));
