//! The two ways to call a handler: for each event, or for the whole batch.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use super::handle::Handled;
use super::progress::Progress;
use super::run::{Savepoints, Trouble};
use super::{Batch, Workshop};
use crate::decode::Decode;
use crate::duplicate::Duplicate;
use crate::staged::Staged;
use crate::store::{Settled, Store, Verdict};

/// A handler, and the way to call it.
pub(in crate::consumer) trait Work<S: Store>:
    Send + Sync + Sized + 'static
{
    type Event: Decode;

    /// Handles the fresh events of a batch in its unit, and notes what became of all its events.
    fn run(
        shop: &Workshop<S, Self>,
        unit: &mut S::Unit,
        batch: &Batch,
        verdicts: Vec<Option<Verdict>>,
        plan: &mut Plan<S::Row>,
        progress: &mut Progress<S::Row>,
    ) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Whether an event can be taken out of a unit without asking the handler again.
    const SEPARABLE: bool;

    fn on_duplicate(&self, duplicate: &Duplicate<'_>, settled: &Settled);
}

/// Calls a [`Handler`](crate::Handler) for each event.
#[derive(Debug)]
pub(in crate::consumer) struct Each<H>(pub(in crate::consumer) H);

/// Calls a [`BatchHandler`](crate::BatchHandler) for all events at once.
#[derive(Debug)]
pub(in crate::consumer) struct Whole<H>(pub(in crate::consumer) H);

/// How a batch is run, by what its earlier runs have shown.
#[derive(Debug)]
pub(in crate::consumer) struct Plan<R> {
    pub(super) savepoints: Savepoints,
    /// What handlers answered in a run whose staged rows could not be written, and the rows: they
    /// are not asked again.
    pub(super) answers: BTreeMap<usize, (Handled, Vec<R>)>,
    /// Events that the batch is run without, since they failed in it.
    pub(super) without: BTreeSet<usize>,
}

impl<R: Send + Sync> Plan<R> {
    pub(super) fn first(savepoints: Savepoints) -> Self {
        Self {
            savepoints,
            answers: BTreeMap::new(),
            without: BTreeSet::new(),
        }
    }

    /// Keeps the answers of a run.
    pub(super) fn keep(&mut self, answers: Vec<(usize, Handled)>, staged: Staged<R>) {
        let mut rows = staged.into_rows();
        let answers = answers.into_iter();
        self.answers = answers
            .map(|(at, handled)| (at, (handled, rows.remove(&at).unwrap_or_default())))
            .collect();
    }
}
