//! What a handler is lent.

use tokio_util::sync::CancellationToken;

use crate::delivery::{Delivery, Headers, Position};
use crate::event_key::EventKey;
use crate::handler::error_chain;
use crate::store::{Store, StoreError, Unit};

/// The unit of work as one handler sees it, and what is known of its event.
#[derive(Debug)]
pub struct Context<'u, S: Store> {
    pub(crate) unit: &'u mut S::Unit,
    /// Rows that wait to be written: first those of earlier events, then this one's.
    pub(crate) staged: &'u mut Staged<S::Row>,
    /// How many of them are of earlier events.
    pub(crate) staged_before: usize,
    pub(crate) delivery: &'u Delivery,
    pub(crate) event_key: &'u EventKey,
    pub(crate) attempt: u32,
    pub(crate) cancelled: &'u CancellationToken,
    /// Set once the handler has had the connection: its writes can then only be undone by the
    /// database.
    pub(crate) took_db: bool,
    /// Whether a savepoint is set before the connection is lent for the first time.
    pub(crate) savepoint: bool,
    /// The unit can no longer be used, for a reason that is not this handler's.
    pub(crate) spoilt: Option<StoreError>,
    /// Why rows that this handler staged could not be written: they are gone, so it cannot be done,
    /// whatever it says.
    pub(crate) unwritten: Option<String>,
}

impl<S: Store> Context<'_, S> {
    /// Lends the transaction's connection, after writing what this unit has staged so far, so that
    /// SQL sees every earlier event of the unit.
    ///
    /// For `sqlx`, pass it on as `&mut *cx.db().await?`, or straight to `execute`. A statement that
    /// fails leaves PostgreSQL's transaction aborted: to go on after an expected error, run it in a
    /// nested transaction (`cx.db().await?.begin().await?`, a savepoint).
    ///
    /// # Errors
    /// When a staged row cannot be written; pass it on with `?`.
    ///
    /// # Cancel safety
    /// Not cancel-safe: dropping the future spoils the unit, which is rolled back.
    pub async fn db(&mut self) -> Result<&mut S::Connection, StoreError> {
        if !self.took_db {
            self.prepare().await?;
        }
        self.write_own().await?;
        Ok(self.unit.connection())
    }

    async fn write_own(&mut self) -> Result<(), StoreError> {
        if self.staged.rows.is_empty() {
            return Ok(());
        }
        // Dropped midway, the rows are neither here nor there. An earlier reason stays.
        let before = self.spoilt.take();
        self.spoilt = Some(dropped_midway());
        let written = self.staged.write_to(self.unit).await;
        self.spoilt = before;
        written.inspect_err(|error| self.unwritten = Some(error_chain(error)))
    }

    /// What earlier events staged is written ahead of the savepoint, so that undoing this handler
    /// leaves it.
    async fn prepare(&mut self) -> Result<(), StoreError> {
        // Until all is written this unit has a hole: a handler that drops the future midway must
        // not get further.
        self.spoilt = Some(dropped_midway());
        self.took_db = true;
        let own = self.staged.rows.split_off(self.staged_before);
        let mut prepared = self.staged.write_to(self.unit).await;
        if prepared.is_ok() && self.savepoint {
            prepared = self.unit.savepoint().await;
        }
        self.staged.rows = own;
        match prepared {
            Ok(()) => {
                self.spoilt = None;
                Ok(())
            }
            Err(error) => {
                let passed_on = error_chain(&error);
                self.spoilt = Some(error);
                Err(StoreError::rolled_back(passed_on))
            }
        }
    }

    /// Hands a row to the unit of work, which writes all rows of a table at once: before
    /// [`Context::db`] lends the connection, and before the commit.
    pub fn stage(&mut self, row: impl Into<S::Row>) {
        self.staged.rows.push(row.into());
    }

    /// The event key: the tenant, and the id that the producer chose.
    pub fn event_key(&self) -> &EventKey {
        self.event_key
    }

    /// Which attempt this is, from 1. Attempts that were nobody's fault (outages, deadlocks, stops)
    /// are not counted.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Where this delivery sits: informative, never an identity.
    pub fn position(&self) -> &Position {
        &self.delivery.position
    }

    /// The headers or attributes it came with.
    pub fn headers(&self) -> &Headers {
        &self.delivery.headers
    }

    /// The record key, where the broker has one.
    pub fn key(&self) -> Option<&[u8]> {
        self.delivery.key.as_deref()
    }

    /// The producer's W3C trace context, as the `traceparent` header carries it.
    pub fn trace_parent(&self) -> Option<&str> {
        std::str::from_utf8(self.delivery.headers.get("traceparent")?).ok()
    }

    /// Cancelled when the consumer stops or the partition is taken away: a handler that works for
    /// long can look at it, and give up early with an error. It charges nobody.
    pub fn cancelled(&self) -> &CancellationToken {
        self.cancelled
    }
}

fn dropped_midway() -> StoreError {
    StoreError::rolled_back("the future of `cx.db()` was dropped midway")
}

/// Rows that wait to be written, in event order.
#[derive(Debug)]
pub(crate) struct Staged<R> {
    rows: Vec<R>,
}

impl<R: Send> Staged<R> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// How many wait: what [`Staged::truncate`] takes to drop a later event's rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.rows.truncate(len);
    }

    pub(crate) async fn write_to<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
    ) -> Result<(), StoreError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        unit.write(std::mem::take(&mut self.rows)).await
    }
}
