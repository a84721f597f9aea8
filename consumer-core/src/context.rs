//! What a handler is lent.

use std::fmt;

use tokio_util::sync::CancellationToken;

use crate::delivery::{Delivery, Headers, Position};
use crate::event_key::EventKey;
use crate::handler::error_chain;
use crate::staged::Staged;
use crate::store::{Store, StoreError, Unit};

/// The unit of work as one handler sees it, and what is known of its event.
#[derive(Debug)]
pub struct Context<'u, S: Store> {
    pub(crate) lent: Lent<'u, S>,
    pub(crate) about: About<'u>,
    pub(crate) cancelled: &'u CancellationToken,
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
        self.lent.db().await
    }

    /// Hands a row to the unit of work, which writes all rows of a table at once: before
    /// [`Context::db`] lends the connection, and before the commit.
    ///
    /// A row that the database does not take (it breaks a constraint) fails its event, as if the
    /// handler had failed; other events of the batch take effect.
    pub fn stage(&mut self, row: impl Into<S::Row>) {
        self.lent.staged.push(self.lent.event, row.into());
    }

    /// The event key: the tenant, and the id that the producer chose.
    pub fn event_key(&self) -> &EventKey {
        self.about.event_key
    }

    /// Which attempt this is, from 1. Attempts that were nobody's fault (outages, deadlocks, stops)
    /// are not counted.
    pub fn attempt(&self) -> u32 {
        self.about.attempt
    }

    /// Where this delivery sits: informative, never an identity.
    pub fn position(&self) -> &Position {
        &self.about.delivery.position
    }

    /// The headers or attributes it came with.
    pub fn headers(&self) -> &Headers {
        &self.about.delivery.headers
    }

    /// The record key, where the broker has one.
    pub fn key(&self) -> Option<&[u8]> {
        self.about.delivery.key.as_deref()
    }

    /// The producer's W3C trace context, as the `traceparent` header carries it.
    pub fn trace_parent(&self) -> Option<&str> {
        self.about.trace_parent()
    }

    /// Cancelled when the consumer stops or the partition is taken away: a handler that works for
    /// long can look at it, and give up early with an error. It charges nobody.
    pub fn cancelled(&self) -> &CancellationToken {
        self.cancelled
    }
}

/// What is known of an event beside itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'u> {
    pub(crate) delivery: &'u Delivery,
    pub(crate) event_key: &'u EventKey,
    pub(crate) attempt: u32,
}

impl<'u> About<'u> {
    pub(crate) fn trace_parent(&self) -> Option<&'u str> {
        std::str::from_utf8(self.delivery.headers.get("traceparent")?).ok()
    }
}

/// The unit of work, lent for one call of a handler.
pub(crate) struct Lent<'u, S: Store> {
    unit: &'u mut S::Unit,
    pub(crate) staged: &'u mut Staged<S::Row>,
    /// Which event of the batch the call is for, or is the first of.
    event: usize,
    /// Of each event of the batch, its lane.
    lanes: &'u [usize],
    savepoint: bool,
    pub(crate) state: LentState,
}

/// What has become of a unit in a handler's hands.
#[derive(Debug, Default)]
pub(crate) struct LentState {
    /// The handler has had the connection: its writes can then only be undone by the database.
    pub(crate) took_db: bool,
    /// The unit can no longer be used, for a reason that is not this handler's.
    pub(crate) spoilt: Option<Spoilt>,
    /// An earlier event of its lane has failed after all, and this one must not go on.
    pub(crate) displaced: bool,
    /// Why rows that this handler staged could not be written: it cannot be done without them,
    /// whatever it says.
    pub(crate) unwritten: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Spoilt {
    /// Rows of earlier events could not be written.
    Unwritten(StoreError),
    /// Anything else.
    Other(StoreError),
}

impl<'u, S: Store> Lent<'u, S> {
    /// `savepoint` tells whether one is set before the connection is lent for the first time, and
    /// whether what earlier events have staged is then written so that it can be undone apart.
    pub(crate) fn new(
        unit: &'u mut S::Unit,
        staged: &'u mut Staged<S::Row>,
        event: usize,
        lanes: &'u [usize],
        savepoint: bool,
    ) -> Self {
        Self {
            unit,
            staged,
            event,
            lanes,
            savepoint,
            state: LentState::default(),
        }
    }

    pub(crate) async fn db(&mut self) -> Result<&mut S::Connection, StoreError> {
        if !self.state.took_db {
            self.prepare().await?;
        }
        self.write_own().await?;
        Ok(self.unit.connection())
    }

    async fn write_own(&mut self) -> Result<(), StoreError> {
        // Dropped midway, the rows are neither here nor there. An earlier reason stays.
        let before = self.state.spoilt.take();
        self.state.spoilt = Some(dropped_midway());
        let written = self.staged.write_all(self.unit).await;
        self.state.spoilt = before;
        written.inspect_err(|error| self.state.unwritten = Some(error_chain(error)))
    }

    /// What earlier events staged is written ahead of the savepoint, so that undoing this handler
    /// leaves it.
    async fn prepare(&mut self) -> Result<(), StoreError> {
        // Until all is written this unit has a hole: a handler that drops the future midway must
        // not get further.
        self.state.spoilt = Some(dropped_midway());
        self.state.took_db = true;
        let Err(spoilt) = self.write_earlier().await else {
            self.state.spoilt = None;
            return Ok(());
        };
        let (Spoilt::Unwritten(error) | Spoilt::Other(error)) = &spoilt;
        let passed_on = error_chain(error);
        self.state.spoilt = Some(spoilt);
        Err(StoreError::rolled_back(passed_on))
    }

    async fn write_earlier(&mut self) -> Result<(), Spoilt> {
        if !self.savepoint {
            let written = self.staged.write_before(self.unit, self.event).await;
            return written.map_err(Spoilt::Unwritten);
        }
        let written = self.staged.write_apart(self.unit, self.event, self.lanes);
        written.await.map_err(Spoilt::Other)?;
        if self.staged.refuses(self.lanes[self.event], self.lanes) {
            self.state.displaced = true;
            return Err(Spoilt::Other(StoreError::rolled_back(
                "an earlier event of this lane has failed",
            )));
        }
        self.unit.savepoint().await.map_err(Spoilt::Other)
    }
}

impl<S: Store> fmt::Debug for Lent<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("event", &self.event)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

fn dropped_midway() -> Spoilt {
    Spoilt::Other(StoreError::rolled_back(
        "the future of `cx.db()` was dropped midway",
    ))
}
