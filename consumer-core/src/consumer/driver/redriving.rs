//! Redriving the dead letters that somebody has asked for, one at a time beside everything else.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::RngCore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::Driver;
use crate::consumer::run_error::RunError;
use crate::consumer::unit::{Redriven, Work};
use crate::delivery::Position;
use crate::handler::error_chain;
use crate::lanes::{Company, LaneId, LaneKey};
use crate::letters::{LetterId, RequestedRedrive};
use crate::store::{Store, StoreError};
use crate::telemetry::TARGET;

/// How often the store is asked for letters that are to be redriven.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How many are asked for at once.
const PAGE: u32 = 64;

/// What is known of the letters that are to be redriven. They are gone through in passes, in the
/// order of their ids; the store keeps those of one lane in order.
pub(super) struct Redriving {
    errands: JoinSet<Errand>,
    queue: VecDeque<RequestedRedrive>,
    /// The last letter of the page before, while there may be another.
    after: Option<LetterId>,
    /// Lanes that have to wait until the next pass.
    blocked: HashSet<[u8; 16]>,
    /// Whether a letter of this pass has come to an end.
    progressed: bool,
    look_at: Instant,
    runs: Option<Runs>,
    /// A letter has had its turn, and the stream is to have the next.
    owes_a_turn: bool,
}

/// The letter that is being redriven.
struct Runs {
    lane: Option<[u8; 16]>,
    /// The lane of this process that waits meanwhile, and when it was to go on.
    occupied: Option<(LaneId, Option<Instant>)>,
    cancelled: CancellationToken,
}

/// What a task of ours brings back.
pub(super) enum Errand {
    Looked(Result<Vec<RequestedRedrive>, StoreError>),
    Redriven(LetterId, Redriven),
}

/// Where a letter belongs.
enum Place {
    /// Into this lane of ours.
    Lane(LaneKey, CancellationToken),
    /// Into no lane that anybody has: anybody may redrive it.
    Anywhere,
    /// Another process has its partition.
    Elsewhere,
}

impl Redriving {
    pub(super) fn new() -> Self {
        Self {
            errands: JoinSet::new(),
            queue: VecDeque::new(),
            after: None,
            blocked: HashSet::new(),
            progressed: false,
            look_at: Instant::now(),
            runs: None,
            owes_a_turn: false,
        }
    }

    /// Whether the stream goes first, since a letter did before. Where one worker is all there is,
    /// letter after letter would keep the stream from it to the last.
    pub(super) fn owes_a_turn(&mut self) -> bool {
        std::mem::take(&mut self.owes_a_turn)
    }

    /// How many units of work run for it.
    pub(super) fn running(&self) -> usize {
        usize::from(self.runs.is_some())
    }

    pub(super) fn is_idle(&self) -> bool {
        self.errands.is_empty()
    }

    pub(super) async fn join_next(&mut self) -> Option<Result<Errand, JoinError>> {
        self.errands.join_next().await
    }

    /// Begins nothing more. What runs is told, and may finish.
    pub(super) fn stop(&mut self) {
        self.queue.clear();
        match &self.runs {
            Some(runs) => runs.cancelled.cancel(),
            None => self.errands.abort_all(),
        }
    }

    /// Ends what runs: its transaction is rolled back.
    pub(super) fn abort(&mut self) {
        self.errands.abort_all();
        // A handler that blocks its thread gets to no await point, and is not waited for.
        self.errands.detach_all();
    }

    fn block(&mut self, lane: Option<[u8; 16]>) {
        self.blocked.extend(lane);
    }

    /// A page was gone through. The last one ends the pass.
    fn end_page(&mut self) {
        let again = self.after.is_some() || self.progressed;
        if self.after.is_none() {
            self.blocked.clear();
            self.progressed = false;
        }
        let wait = if again { Duration::ZERO } else { LOOK_EVERY };
        self.look_at = Instant::now() + wait;
    }
}

impl<S: Store, W: Work<S>> Driver<S, W> {
    /// Redrives the next letter whose time has come, or looks for some.
    pub(super) fn redrive_next(&mut self) {
        if !self.may_redrive() {
            return;
        }
        if self.redriving.queue.is_empty() {
            self.look_for_letters();
            return;
        }
        if self.circuit.room(self.units.len()) == 0 {
            return;
        }
        // An event that must run alone holds back all others until what runs has ended.
        let first = self.lanes.first();
        if first.is_some_and(|item| item.suspect.load(Ordering::Relaxed)) {
            return;
        }
        let mut behind = HashSet::new();
        let mut kept = VecDeque::new();
        while let Some(letter) = self.redriving.queue.pop_front() {
            let is_behind =
                |lanes: &HashSet<_>| letter.lane.is_some_and(|lane| lanes.contains(&lane));
            if is_behind(&self.redriving.blocked) {
                continue;
            }
            let place = self.place_of(&letter);
            if !letter.wait.is_zero() || matches!(place, Place::Elsewhere) {
                self.redriving.block(letter.lane);
                continue;
            }
            if is_behind(&behind) || !self.start(&letter, place) {
                // Its lane or its key is at work; the end of a unit brings us back here.
                behind.extend(letter.lane);
                kept.push_back(letter);
                continue;
            }
            break;
        }
        kept.append(&mut self.redriving.queue);
        self.redriving.queue = kept;
        if self.redriving.queue.is_empty() && self.redriving.runs.is_none() {
            self.redriving.end_page();
        }
    }

    /// While nothing succeeds a redrive would not either.
    fn may_redrive(&self) -> bool {
        let idle = self.redriving.is_idle() && self.stop.is_none();
        idle && !self.circuit.is_open() && self.quarantine.is_none()
    }

    /// When the store is to be asked again.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let is_next = self.may_redrive() && self.redriving.queue.is_empty();
        is_next.then_some(self.redriving.look_at)
    }

    fn look_for_letters(&mut self) {
        if Instant::now() < self.redriving.look_at {
            return;
        }
        let (shop, after) = (Arc::clone(&self.shop), self.redriving.after);
        self.redriving
            .errands
            .spawn(async move { Errand::Looked(shop.requested_redrives(after, PAGE).await) });
    }

    /// Which lane of ours a letter belongs into, that it may not overtake or be overtaken in while
    /// it runs.
    fn place_of(&self, letter: &RequestedRedrive) -> Place {
        let part = letter.position.part();
        let mut ours = self.assignments.iter();
        let held = ours.find(|(_, held)| *held.name == part && !held.cancelled.is_cancelled());
        if let Some((id, held)) = held {
            let lane = LaneKey::of(*id, &letter.order, letter.key.as_ref(), self.config.lanes);
            return Place::Lane(lane, held.cancelled.child_token());
        }
        let is_shared = match &letter.position {
            // Whoever has none of a topic's partitions cannot tell who has which.
            Position::Log { topic, .. } => {
                let prefix = format!("{topic}/");
                let mut ours = self.assignments.values();
                ours.any(|held| held.name.starts_with(&prefix))
            }
            Position::Queue { .. } => false,
        };
        if is_shared || self.assignments.is_empty() {
            Place::Elsewhere
        } else {
            Place::Anywhere
        }
    }

    /// Starts a redrive, unless its lane or its event is at work in this process.
    fn start(&mut self, letter: &RequestedRedrive, place: Place) -> bool {
        let at_work = letter.event.as_ref().is_some_and(|event| {
            let mut running = self.running.values().flat_map(|taken| &taken.items);
            running.any(|item| item.key.as_ref().ok() == Some(event))
        });
        if at_work {
            return false;
        }
        let (occupied, cancelled) = match place {
            Place::Lane(key, cancelled) if key.is_ordered() => match self.lanes.occupy(&key) {
                Some(occupied) => (Some(occupied), cancelled),
                None => return false,
            },
            Place::Lane(_, cancelled) => (None, cancelled),
            Place::Anywhere | Place::Elsewhere => (None, CancellationToken::new()),
        };
        let (shop, seed) = (Arc::clone(&self.shop), self.rng.next_u64());
        let (requested, token) = (letter.clone(), cancelled.clone());
        self.redriving.errands.spawn(async move {
            Errand::Redriven(requested.id, shop.redrive(&requested, token, seed).await)
        });
        self.redriving.runs = Some(Runs {
            lane: letter.lane,
            occupied,
            cancelled,
        });
        true
    }

    /// A look or a redrive has ended.
    pub(super) fn errand_ended(&mut self, ended: Result<Errand, JoinError>) {
        let runs = self.redriving.runs.take();
        let lane = runs.as_ref().and_then(|runs| runs.lane);
        if let Some((id, until)) = runs.and_then(|runs| runs.occupied) {
            self.finish(id, 0, Company::Same, until);
            self.end_revocations(Instant::now());
        }
        match ended {
            Ok(Errand::Looked(Ok(letters))) => {
                let is_full = letters.len() >= PAGE as usize;
                let last = letters.last().map(|letter| letter.id);
                self.redriving.after = last.filter(|_| is_full);
                self.redriving.queue = letters.into();
            }
            Ok(Errand::Looked(Err(cause))) => {
                debug!(target: TARGET, consumer = %self.name, cause = %error_chain(&cause), "letters to redrive could not be looked for");
                self.redriving.look_at = Instant::now() + LOOK_EVERY;
                return;
            }
            Ok(Errand::Redriven(id, redriven)) => {
                self.redriving.owes_a_turn = true;
                self.redriven(id, lane, redriven);
            }
            Err(join_error) => {
                if join_error.is_panic() {
                    error!(target: TARGET, consumer = %self.name, error = %join_error, "a redrive panicked; its transaction is gone, and the letter is still there");
                }
                self.redriving.block(lane);
            }
        }
        if self.redriving.queue.is_empty() {
            self.redriving.end_page();
        }
    }

    fn redriven(&mut self, id: LetterId, lane: Option<[u8; 16]>, redriven: Redriven) {
        redriven.log(&self.name, id);
        match redriven {
            Redriven::Applied | Redriven::Rejected(_) | Redriven::WasSettled(_) => {
                self.redriving.progressed = true;
                self.stats.update(|stats| stats.redriven += 1);
            }
            // Its mark is gone, and those behind it go on.
            Redriven::GivenUp(_) => {
                self.redriving.progressed = true;
                self.stats.update(|stats| stats.redrives_failed += 1);
            }
            Redriven::Failed(_) => {
                self.redriving.block(lane);
                self.stats.update(|stats| stats.redrives_failed += 1);
            }
            Redriven::NotNow | Redriven::Later(_) => self.redriving.block(lane),
            Redriven::Fatal(store_error) => self.fail(RunError::Store(store_error)),
        }
    }
}
