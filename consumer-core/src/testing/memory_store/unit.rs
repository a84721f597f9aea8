//! One transaction for a batch of events.

use std::time::Duration;

use async_trait::async_trait;

use super::connection::{MemoryConnection, MemoryRow};
use super::database::{Lock, NotLocked, Retry, Write};
use crate::claim::Claim;
use crate::dead_letter::DeadLetter;
use crate::event_key::EventKey;
use crate::store::{Begin, Late, Settled, StoreError, Unit, Verdict};

/// A transaction of a [`MemoryStore`](super::MemoryStore).
#[derive(Debug)]
pub struct MemoryUnit {
    connection: MemoryConnection,
    claim_wait: Duration,
    late: Late,
}

impl MemoryUnit {
    pub(super) fn new(connection: MemoryConnection, begin: Begin) -> Self {
        Self {
            connection,
            claim_wait: begin.claim_wait,
            late: begin.late,
        }
    }

    async fn claim_one(&mut self, claim: &Claim) -> Result<Verdict, StoreError> {
        let connection = &mut self.connection;
        let consumer = connection.consumer();
        let place = {
            let state = connection.database.state();
            state.memory.place(claim, self.late, state.clock.today())
        };
        let place = match place {
            Ok(place) => place,
            Err(untimely) => return Ok(untimely),
        };
        let row = (consumer, claim.key.clone(), place);
        let lock = Lock::Key(row.clone());
        let locked =
            connection
                .database
                .lock(connection.transaction, lock.clone(), self.claim_wait);
        match locked.await {
            Ok(()) => {}
            Err(NotLocked::TimedOut) => return Err(StoreError::Busy),
            Err(NotLocked::Failed(error)) => return Err(error.into()),
        }
        let (settled, prior) = {
            let state = connection.database.state();
            let prior = state.retries.get(&(consumer, claim.key.clone()));
            let settled = state.inbox.get(&row).map(|row| {
                let age = state.clock.since(row.recorded_at);
                claim.verdict_on(row.settled.clone(), row.fingerprint, age)
            });
            (settled, prior.map(Retry::prior).unwrap_or_default())
        };
        if let Some(verdict) = settled {
            connection.database.unlock(connection.transaction, &lock);
            return Ok(verdict);
        }
        let claimed = Write::Claim(claim.key.clone(), place, claim.fingerprint);
        connection.write([claimed]);
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
            let place = self.connection.place_of(key);
            self.connection.write([Write::Unclaim(key.clone(), place)]);
        }
        Ok(())
    }

    async fn record(&mut self, outcomes: &[(EventKey, Settled)]) -> Result<(), StoreError> {
        self.connection.round_trip().await?;
        for (key, settled) in outcomes {
            let place = self.connection.place_of(key);
            let outcome = Write::Outcome(key.clone(), place, settled.clone());
            self.connection.write([outcome]);
        }
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

    async fn commit(mut self) -> Result<(), StoreError> {
        self.connection.commit().await
    }

    async fn rollback(self) {
        drop(self);
    }
}
