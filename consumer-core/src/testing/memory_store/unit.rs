//! One transaction for a batch of events.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;

use super::connection::{MemoryConnection, MemoryRow};
use super::database::{InboxKey, Lock, NotLocked, Retry, Write};
use crate::claim::Claim;
use crate::day::Day;
use crate::dead_letter::DeadLetter;
use crate::event_key::EventKey;
use crate::letters::{Letter, LetterId};
use crate::store::{Begin, Late, Reopen, Settled, StoreError, Unit, Verdict};

/// A transaction of a [`MemoryStore`](super::MemoryStore).
#[derive(Debug)]
pub struct MemoryUnit {
    connection: MemoryConnection,
    claim_wait: Duration,
    late: Late,
    /// The inbox rows that this unit has taken back.
    reopened: BTreeSet<InboxKey>,
}

impl MemoryUnit {
    pub(super) fn new(connection: MemoryConnection, begin: Begin) -> Self {
        Self {
            connection,
            claim_wait: begin.claim_wait,
            late: begin.late,
            reopened: BTreeSet::new(),
        }
    }

    /// Where the inbox keeps the event, or why it is not to be looked for.
    fn row_of(&self, claim: &Claim) -> Result<InboxKey, Verdict> {
        let state = self.connection.database.state();
        let today = Day::of(state.clock.now());
        let place = state.memory.place(claim, self.late, today)?;
        Ok((self.connection.consumer(), claim.key.clone(), place))
    }

    /// Waits until no other unit has the key.
    async fn lock_key(&mut self, row: &InboxKey) -> Result<(), StoreError> {
        let connection = &mut self.connection;
        let lock = Lock::Key(row.clone());
        let locked = (connection.database).lock(connection.transaction, lock, self.claim_wait);
        match locked.await {
            Ok(()) => Ok(()),
            Err(NotLocked::TimedOut) => Err(StoreError::Busy),
            Err(NotLocked::Failed(error)) => Err(error.into()),
        }
    }

    async fn claim_one(&mut self, claim: &Claim) -> Result<Verdict, StoreError> {
        let row = match self.row_of(claim) {
            Ok(row) => row,
            Err(untimely) => return Ok(untimely),
        };
        self.lock_key(&row).await?;
        let connection = &mut self.connection;
        let (consumer, _, place) = row;
        let (settled, prior) = {
            let state = connection.database.state();
            let prior = state.retries.get(&(consumer, claim.key.clone()));
            let settled = state.inbox.get(&row).map(|row| {
                // None, if the clock has gone back since.
                let age = state.clock.now().duration_since(row.recorded_at);
                let age = age.unwrap_or_default();
                claim.verdict_on(row.settled.clone(), row.fingerprint, age)
            });
            let settled = settled.filter(|_| !self.reopened.contains(&row));
            (settled, prior.map(Retry::prior).unwrap_or_default())
        };
        if let Some(verdict) = settled {
            let lock = Lock::Key(row);
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

    async fn write(&mut self, rows: &[MemoryRow]) -> Result<(), StoreError> {
        Ok(self.connection.insert(rows.to_vec()).await?)
    }

    async fn rows_written(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(Some(self.connection.rows_written()))
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

    async fn room_for_letters(&mut self, limit: u64) -> Result<u64, StoreError> {
        self.connection.round_trip().await?;
        let consumer = self.connection.consumer();
        let state = self.connection.database.state();
        let letters = state.dead_letters.values();
        let count = letters.filter(|row| row.consumer == consumer).count();
        Ok(limit.saturating_sub(count as u64))
    }

    async fn has_letter(&mut self, source_key: &[u8; 32]) -> Result<bool, StoreError> {
        self.connection.round_trip().await?;
        let row = (self.connection.consumer(), *source_key);
        let state = self.connection.database.state();
        Ok(state.dead_letters.contains_key(&row))
    }

    async fn take_letter(&mut self, id: LetterId) -> Result<Option<Letter>, StoreError> {
        self.connection.round_trip().await?;
        let connection = &self.connection;
        let (database, transaction) = (&connection.database, connection.transaction);
        if !database.lock_now(transaction, Lock::Letter(id))? {
            return Ok(None);
        }
        let letter = database.state().due_letter(id, connection.consumer());
        if letter.is_none() {
            database.unlock(transaction, &Lock::Letter(id));
        }
        Ok(letter)
    }

    async fn delete_letter(&mut self, id: LetterId) -> Result<(), StoreError> {
        self.connection.round_trip().await?;
        self.connection.write([Write::DeleteLetter(id)]);
        Ok(())
    }

    async fn reopen(&mut self, claim: &Claim, what: Reopen) -> Result<(), StoreError> {
        self.connection.round_trip().await?;
        let Ok(row) = self.row_of(claim) else {
            return Ok(());
        };
        self.lock_key(&row).await?;
        let is_what = {
            let state = self.connection.database.state();
            let settled = state.inbox.get(&row).map(|row| row.settled.clone());
            match what {
                Reopen::Dead => settled == Some(Settled::Dead),
                Reopen::Rejected => matches!(settled, Some(Settled::Rejected { .. })),
            }
        };
        if is_what {
            let unclaim = Write::Unclaim(claim.key.clone(), row.2);
            self.connection.write([unclaim]);
            self.reopened.insert(row);
        }
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
