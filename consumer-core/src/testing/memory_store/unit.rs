//! One transaction for a batch of events.

use std::time::Duration;

use async_trait::async_trait;

use super::connection::{MemoryConnection, MemoryRow};
use super::database::{InboxRow, Lock, NotLocked, Retry, Write};
use crate::claim::Claim;
use crate::crash_guard::ProcessId;
use crate::dead_letter::DeadLetter;
use crate::event_key::EventKey;
use crate::store::{Settled, StoreError, Unit, Verdict};

/// A transaction of a [`MemoryStore`](super::MemoryStore).
#[derive(Debug)]
pub struct MemoryUnit {
    connection: MemoryConnection,
    claim_wait: Duration,
}

impl MemoryUnit {
    pub(super) fn new(connection: MemoryConnection, claim_wait: Duration) -> Self {
        Self {
            connection,
            claim_wait,
        }
    }

    async fn claim_one(&mut self, claim: &Claim) -> Result<Verdict, StoreError> {
        let key = &claim.key;
        let connection = &mut self.connection;
        let lock = Lock::Key(connection.consumer(), key.clone());
        let locked =
            connection
                .database
                .lock(connection.transaction, lock.clone(), self.claim_wait);
        match locked.await {
            Ok(()) => {}
            Err(NotLocked::TimedOut) => return Err(StoreError::Busy),
            Err(NotLocked::Failed(error)) => return Err(error.into()),
        }
        let row = (connection.consumer(), key.clone());
        let (inbox_row, prior) = {
            let state = connection.database.state();
            let prior = state
                .retries
                .get(&row)
                .map(Retry::prior)
                .unwrap_or_default();
            (state.inbox.get(&row).cloned(), prior)
        };
        if let Some(InboxRow {
            settled,
            fingerprint,
            recorded_at,
        }) = inbox_row
        {
            connection.database.unlock(connection.transaction, &lock);
            return Ok(claim.verdict_on(settled, fingerprint, recorded_at.elapsed()));
        }
        connection.write([Write::Claim(claim.clone())]);
        Ok(Verdict::Fresh(prior))
    }
}

#[async_trait]
impl Unit for MemoryUnit {
    type Connection = MemoryConnection;
    type Row = MemoryRow;

    async fn claim(&mut self, claims: &[Claim]) -> Result<Vec<Verdict>, StoreError> {
        self.connection.round_trip().await?;
        let mut order: Vec<usize> = (0..claims.len()).collect();
        // Everybody takes keys in the same order, so that nobody waits in a circle.
        order.sort_by_key(|&place| &claims[place].key);
        for pair in order.windows(2) {
            assert_ne!(
                claims[pair[0]].key, claims[pair[1]].key,
                "a key was claimed twice in one batch"
            );
        }
        let mut verdicts = Vec::with_capacity(claims.len());
        for place in order {
            verdicts.push((place, self.claim_one(&claims[place]).await?));
        }
        verdicts.sort_by_key(|(place, _)| *place);
        Ok(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
    }

    fn connection(&mut self) -> &mut MemoryConnection {
        &mut self.connection
    }

    async fn write(&mut self, rows: Vec<MemoryRow>) -> Result<(), StoreError> {
        Ok(self.connection.insert(rows).await?)
    }

    async fn savepoint(&mut self) -> Result<(), StoreError> {
        self.connection.set_savepoint().await
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StoreError> {
        self.connection.rollback_to_savepoint().await
    }

    async fn release_savepoint(&mut self) -> Result<(), StoreError> {
        self.connection.release_savepoint().await
    }

    async fn unclaim(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        self.connection.round_trip().await?;
        for key in keys {
            self.connection.expect_claimed(key);
        }
        self.connection
            .write(keys.iter().cloned().map(Write::Unclaim));
        Ok(())
    }

    async fn record(&mut self, outcomes: &[(EventKey, Settled)]) -> Result<(), StoreError> {
        self.connection.round_trip().await?;
        for (key, _) in outcomes {
            self.connection.expect_claimed(key);
        }
        let outcomes = outcomes.iter().cloned();
        self.connection
            .write(outcomes.map(|(key, settled)| Write::Outcome(key, settled)));
        Ok(())
    }

    async fn set_aside(&mut self, letters: &[DeadLetter]) -> Result<(), StoreError> {
        self.connection.round_trip().await?;
        self.connection
            .write(letters.iter().cloned().map(Box::new).map(Write::Letter));
        Ok(())
    }

    async fn forget_attempts(&mut self, keys: &[EventKey]) -> Result<(), StoreError> {
        self.connection.round_trip().await?;
        self.connection
            .write(keys.iter().cloned().map(Write::Forget));
        Ok(())
    }

    async fn unmark(&mut self, process: ProcessId, keys: &[EventKey]) -> Result<(), StoreError> {
        self.connection.round_trip().await?;
        let keys = keys.iter().cloned();
        self.connection
            .write(keys.map(|key| Write::Unmark(process, key)));
        Ok(())
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        self.connection.commit().await
    }

    async fn rollback(self) {
        drop(self);
    }
}
