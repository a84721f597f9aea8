//! How many units may begin: all that fit, or a probe now and then while nothing succeeds.

use std::sync::Arc;

use tokio::task;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Driver;
use crate::batch_size::BatchSize;
use crate::consumer::circuit::{Change, Evidence};
use crate::consumer::item::{Fate, Item};
use crate::consumer::unit::{Again, End, Report, Work};
use crate::health::Cause;
use crate::lanes::Taken;
use crate::store::Store;
use crate::telemetry::TARGET;

impl<S: Store, W: Work<S>> Driver<S, W> {
    /// Learns from a unit that has ended (or died: then there is no report) how the others may
    /// fare.
    pub(super) fn learn(
        &mut self,
        unit: task::Id,
        report: Option<&Report>,
        taken: &Taken<Arc<Item>>,
    ) {
        if self.stop.is_some() {
            return;
        }
        let stuck = self.units.is_empty() && self.flow.total().0 > taken.items.len();
        let evidence = evidence(report, taken);
        let change = self
            .circuit
            .ended(unit, evidence, stuck, Instant::now(), &mut self.rng);
        let failure = report.and_then(|report| report.failure.as_deref());
        let failure = failure.unwrap_or_default().replace('\n', ": ");
        match change {
            None => {}
            Some(Change::Opened { failures }) => {
                warn!(target: TARGET, consumer = %self.name, failures, error = failure, "nothing succeeds any more: the circuit is open, and one event is tried now and then");
                self.health.raise(Cause::CircuitOpen, &failure);
                self.stats.update(|stats| stats.circuit_opened += 1);
            }
            Some(Change::StillOpen) if failure.is_empty() => {}
            Some(Change::StillOpen) => self.health.raise(Cause::CircuitOpen, &failure),
            Some(Change::Closed { after, failures }) => {
                info!(target: TARGET, consumer = %self.name, ?after, failures, "an event has succeeded: the circuit is closed");
                self.health.clear(Cause::CircuitOpen);
                // What has recovered is not to be knocked down again.
                self.batch_size = BatchSize::new(self.config.batch.messages);
            }
        }
        let away = matches!(evidence, Evidence::Outage)
            && matches!(
                report.map(|report| &report.end),
                Some(End::Again(Again::Outage))
            );
        if away && self.circuit.is_open() {
            self.health.raise(Cause::StoreAway, &failure);
        } else if !matches!(evidence, Evidence::Nothing) {
            self.health.clear(Cause::StoreAway);
        }
    }
}

/// What a unit says about the others.
fn evidence<'e>(report: Option<&Report>, taken: &'e Taken<Arc<Item>>) -> Evidence<'e> {
    // What failed because it was told to give up says nothing.
    let failure = |item: &'e Arc<Item>| match &item.key {
        Ok(key) if !item.cancelled.is_cancelled() => Evidence::Failure(key),
        _ => Evidence::Nothing,
    };
    let first = taken.items.first().map_or(Evidence::Nothing, failure);
    match report.map(|report| &report.end) {
        Some(End::Fates(fates)) => {
            let worked = |fate: &Fate| matches!(fate, Fate::Applied { .. } | Fate::Rejected { .. });
            let failed = (fates.iter()).position(|fate| matches!(fate, Fate::Failed { .. }));
            match failed {
                _ if fates.iter().any(worked) => Evidence::Success,
                Some(at) => taken.items.get(at).map_or(Evidence::Nothing, failure),
                None => Evidence::Silence,
            }
        }
        Some(End::Again(Again::Outage | Again::Elsewhere)) => Evidence::Outage,
        Some(End::Again(Again::Excused(_))) | None => first,
        Some(End::Again(_) | End::Fatal(_) | End::Lagging(_)) => Evidence::Nothing,
    }
}
