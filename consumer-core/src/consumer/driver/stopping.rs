//! The end of assignments, and of the consumer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, info, warn};

use super::settling::LetGo;
use super::{Driver, RunError, later};
use crate::consumer::unit::Work;
use crate::delivery::AssignmentId;
use crate::handler::error_chain;
use crate::health::Cause;
use crate::source::Revocation;
use crate::stats::Stats;
use crate::store::Store;
use crate::telemetry::TARGET;

/// Assignments that are about to end: units that hold events of theirs still run.
pub(super) struct Ending {
    assignments: BTreeSet<AssignmentId>,
    pub(super) deadline: Instant,
    /// Dropping it tells the source that all is settled that will be.
    _revocation: Revocation,
}

/// A stop that is under way.
pub(super) struct Stop {
    pub(super) deadline: Instant,
    /// Deliveries whose unit was aborted.
    aborted: usize,
}

impl<S: Store, W: Work<S>> Driver<S, W> {
    /// Drops what has not begun, and waits for what runs.
    pub(super) fn revoked(&mut self, revocation: Revocation) {
        for &id in &revocation.assignments {
            let Some(held) = self.assignments.get(&id) else {
                continue;
            };
            info!(target: TARGET, consumer = %self.name, assignment = %held.name, "revoked");
            held.cancelled.cancel();
            let followers = self.keys.drop_followers(|item| item.assignment() == id);
            self.leave(&followers, LetGo::Drop);
            let unbegun = self.lanes.end(id);
            self.let_go(unbegun, LetGo::Drop);
        }
        self.revocations.push(Ending {
            assignments: revocation.assignments.iter().copied().collect(),
            deadline: later(revocation.deadline),
            _revocation: revocation,
        });
        self.end_revocations(Instant::now());
    }

    /// Ends the revocations whose units have all ended, or whose time is up: from here on nothing
    /// of those assignments is settled any more.
    pub(super) fn end_revocations(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.revocations.len() {
            let ending = &self.revocations[at];
            let running = ending
                .assignments
                .iter()
                .any(|&id| self.lanes.is_running(id));
            if running && now < ending.deadline {
                at += 1;
                continue;
            }
            let ending = self.revocations.remove(at);
            for id in &ending.assignments {
                self.assignments.remove(id);
                self.flow.ended(*id);
                self.shop.guard.ended(*id);
            }
            if running {
                // A stop begins nothing more, so nothing could take its place.
                if self.stop.is_none() {
                    self.orphan_what_runs(&ending.assignments);
                }
                warn!(target: TARGET, consumer = %self.name, "a revocation's time was up before its units had ended; what they commit is settled by the next owner");
            }
        }
    }

    /// What runs on is no longer ours to settle. If the same partition comes back, its events must
    /// wait in their lane, for the claim, and not behind a unit from before, where they would lose
    /// their place.
    fn orphan_what_runs(&mut self, assignments: &BTreeSet<AssignmentId>) {
        let running = self.running.values().flat_map(|taken| &taken.items);
        let orphans: BTreeMap<_, _> = running
            .filter(|item| assignments.contains(&item.assignment()))
            .map(|item| ((item.assignment(), item.delivery.tag), Arc::clone(item)))
            .collect();
        for item in orphans.into_values() {
            if let Some(key) = item.followed_by()
                && let Some(heir) = self.keys.promote(key)
            {
                self.lanes.push(heir.lane(), Arc::clone(&heir), heir.bytes);
            }
            item.orphaned.store(true, Ordering::Relaxed);
        }
    }

    /// Takes nothing more, gives back what has not begun, and lets running units finish.
    pub(super) fn begin_stop(&mut self) {
        info!(target: TARGET, consumer = %self.name, running = self.units.len(), "stopping");
        self.health.raise(Cause::Stopping, "");
        self.source.stop_receiving();
        self.beat.abort_all();
        self.stop = Some(Stop {
            deadline: later(self.config.drain),
            aborted: 0,
        });
        for held in self.assignments.values() {
            held.cancelled.cancel();
        }
        self.redriving.stop();
        let unbegun = self.lanes.end_all();
        self.let_go(unbegun, LetGo::Release(Duration::ZERO));
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stop.is_some() && self.units.is_empty() && self.redriving.is_idle()
    }

    /// When the drain deadline has passed: aborts what still runs, and a moment later leaves behind
    /// what could not be aborted.
    pub(super) fn abort_at_deadline(&mut self, now: Instant) {
        if self.stop.as_ref().is_some_and(|stop| now >= stop.deadline) {
            self.redriving.abort();
        }
        let running = self.running.values().map(|taken| taken.items.len()).sum();
        let Some(stop) = self
            .stop
            .as_mut()
            .filter(|stop| now >= stop.deadline && running > 0)
        else {
            return;
        };
        if stop.aborted == 0 {
            warn!(target: TARGET, consumer = %self.name, deliveries = running, "the drain deadline has passed, aborting what still runs");
            stop.aborted = running;
            stop.deadline = now + ABORT_GRACE;
            self.units.abort_all();
        } else {
            // An aborted task ends at its next await point; a handler that computes or blocks does
            // not get there. The process is about to end, and its transaction with it.
            error!(target: TARGET, consumer = %self.name, deliveries = running, "handlers that block their thread are left behind");
            self.units.detach_all();
            for taken in std::mem::take(&mut self.running).into_values() {
                self.put_back(&taken, None);
            }
        }
    }

    /// Lets go of the source. What is still to be told to the broker gets what is left of the
    /// deadline, and a moment at least.
    pub(super) async fn close(self) -> Result<Stats, RunError> {
        let Self {
            source,
            stop,
            stats,
            fatal,
            name,
            shop,
            ..
        } = self;
        let (deadline, aborted) =
            stop.map_or((Instant::now(), 0), |stop| (stop.deadline, stop.aborted));
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(CLOSE_GRACE);
        let (closed, ()) = tokio::join!(source.close(left), shop.flush(left));
        let stats = stats.snapshot();
        info!(target: TARGET, consumer = %name, ?stats, "consumer stopped");
        if let Some(run_error) = fatal {
            if let Err(close_error) = closed {
                warn!(target: TARGET, consumer = %name, error = %error_chain(&close_error), "the source did not close in good order");
            }
            return Err(run_error);
        }
        if aborted > 0 {
            return Err(RunError::DrainDeadline { aborted });
        }
        closed.map_err(RunError::Source)?;
        Ok(stats)
    }
}

/// How long aborted units may take to reach an await point.
const ABORT_GRACE: Duration = Duration::from_secs(1);

/// What closing the source gets even when the deadline has passed.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
