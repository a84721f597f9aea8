//! Which messages this process holds, and what SQS is still to be told about each.
//!
//! Pure: it never waits and reads no clock, so every rule here is tested without a queue. The
//! receiver enters messages, the runtime's settlements change what is wanted of them, and the
//! settler takes calls from here and enters their answers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oneffect_core::{Settle, Settlement};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::api::{Answer, Call, CallKind, Entry, Wish};
use crate::backoff::Backoff;

/// SQS hides a message for no more than 12 hours from its receipt, whatever is asked for. The
/// minute is for the time that answers and requests travel.
const LONGEST_HIDDEN: Duration = Duration::from_mins(12 * 60 - 1);

/// How many entries SQS takes in a batch.
const BATCH: usize = 10;

/// How often an entry may be refused before it is given up. With [`RETRY`] that takes 16 to 33
/// seconds; the message then shows again, and is found to be a duplicate.
const MAX_REFUSALS: u32 = 10;

const RETRY: Backoff = Backoff {
    shortest: Duration::from_millis(100),
    longest: Duration::from_secs(10),
};

#[derive(Debug)]
pub(crate) struct Ledger {
    visibility: Duration,
    messages: HashMap<u64, Held>,
    numbers: HashMap<Box<str>, u64>,
    /// The message of each delivery that the runtime has not settled, by tag.
    deliveries: HashMap<u64, u64>,
    next_number: u64,
    next_tag: u64,
    /// Messages to delete, by when. Those of a call that is under way are in neither agenda, so at
    /// most one call is ever under way for a message, and calls cannot overtake each other.
    deletes: BTreeSet<(Instant, u64)>,
    /// Messages whose visibility is to be changed, by when.
    changes: BTreeSet<(Instant, u64)>,
    given_up: usize,
    closed: bool,
}

/// One receipt of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receipt<'a> {
    pub(crate) message_id: &'a str,
    pub(crate) handle: &'a str,
    /// The FIFO message group; `None` on a standard queue.
    pub(crate) group: Option<&'a [u8]>,
}

/// A message that this process has received.
#[derive(Debug)]
struct Held {
    id: Box<str>,
    /// The newest receipt handle: only that one is sure to delete, however many deliveries there
    /// have been.
    handle: Arc<str>,
    /// Its FIFO message group.
    group: Option<Bytes>,
    /// When that receipt was: the 12 hours start there.
    received_at: Instant,
    /// How many deliveries of it the runtime has not settled.
    open: usize,
    /// What a delivery was released with while another one was still open.
    released: Option<Instant>,
    goal: Goal,
    /// A call that names it is under way.
    under_way: bool,
    /// When the goal's next call may be made.
    not_before: Instant,
    /// When it has to be extended; `None` when that has become impossible.
    extend_at: Option<Instant>,
    refusals: u32,
    planned_delete: Option<Instant>,
    planned_change: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// Stay hidden: a delivery is open.
    Hide,
    /// Show again, at this time.
    Show(Instant),
    Delete,
    /// Deleted, or lost to us; deliveries of it are still open.
    Gone,
}

impl Ledger {
    pub(crate) fn new(visibility: Duration) -> Self {
        Self {
            visibility,
            messages: HashMap::new(),
            numbers: HashMap::new(),
            deliveries: HashMap::new(),
            next_number: 0,
            next_tag: 0,
            deletes: BTreeSet::new(),
            changes: BTreeSet::new(),
            given_up: 0,
            closed: false,
        }
    }

    /// Enters one receipt of a message; returns the tag of its delivery.
    ///
    /// The same message may come again while an earlier delivery is open, or its delete is under
    /// way: each delivery has its own tag, and all of them share the newest handle.
    pub(crate) fn received(&mut self, receipt: &Receipt<'_>, now: Instant) -> u64 {
        let extend_at = Some(now + self.visibility / 2);
        let number = match self.numbers.get(receipt.message_id) {
            Some(&number) => number,
            None => self.enter(receipt, now),
        };
        if let Some(held) = self.messages.get_mut(&number) {
            held.handle = Arc::from(receipt.handle);
            held.received_at = now;
            held.open += 1;
            held.released = None;
            // A delete that has not succeeded is made with the new handle.
            if held.goal != Goal::Delete {
                held.goal = Goal::Hide;
            }
            held.not_before = now;
            held.extend_at = extend_at;
            held.refusals = 0;
        }
        self.plan(number);
        let tag = self.next_tag;
        self.next_tag += 1;
        self.deliveries.insert(tag, number);
        tag
    }

    fn enter(&mut self, receipt: &Receipt<'_>, now: Instant) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.numbers.insert(receipt.message_id.into(), number);
        self.messages.insert(
            number,
            Held {
                id: receipt.message_id.into(),
                handle: Arc::from(receipt.handle),
                group: receipt.group.map(Bytes::copy_from_slice),
                received_at: now,
                open: 0,
                released: None,
                goal: Goal::Hide,
                under_way: false,
                not_before: now,
                extend_at: None,
                refusals: 0,
                planned_delete: None,
                planned_change: None,
            },
        );
        number
    }

    /// Enters a receipt that nobody is to handle any more: it is given back at once.
    pub(crate) fn give_back(&mut self, receipt: &Receipt<'_>, now: Instant) {
        let tag = self.received(receipt, now);
        self.settle_one(tag, Settle::Release(Duration::ZERO), now);
    }

    /// Enters what the runtime has decided.
    ///
    /// What is released of one group gets one time, the latest of them: a later message of a group
    /// must not show while an earlier one hides. Calls are then made in the order of receipt.
    pub(crate) fn settle(&mut self, settlements: &[Settlement], now: Instant) {
        let mut latest: HashMap<Bytes, Duration> = HashMap::new();
        for settlement in settlements {
            if let (Settle::Release(after), Some(group)) =
                (settlement.settle, self.group_of(settlement.tag))
            {
                let latest = latest.entry(group).or_default();
                *latest = after.max(*latest);
            }
        }
        for settlement in settlements {
            let group_after = (self.group_of(settlement.tag)).and_then(|group| latest.get(&group));
            let settle = match (settlement.settle, group_after) {
                (Settle::Release(_), Some(&after)) => Settle::Release(after),
                (settle, _) => settle,
            };
            self.settle_one(settlement.tag, settle, now);
        }
    }

    fn group_of(&self, tag: u64) -> Option<Bytes> {
        let held = self.messages.get(self.deliveries.get(&tag)?)?;
        held.group.clone()
    }

    fn settle_one(&mut self, tag: u64, settle: Settle, now: Instant) {
        let Some(number) = self.deliveries.remove(&tag) else {
            return;
        };
        let Some(held) = self.messages.get_mut(&number) else {
            return;
        };
        held.open = held.open.saturating_sub(1);
        match settle {
            Settle::Ack if held.goal != Goal::Gone => {
                held.goal = Goal::Delete;
                held.not_before = now;
                held.refusals = 0;
            }
            Settle::Release(after) if held.goal == Goal::Hide => {
                let until = now + after.min(LONGEST_HIDDEN);
                held.released = held.released.max(Some(until));
                // While another delivery of it is being handled it stays hidden.
                if held.open == 0 {
                    held.goal = Goal::Show(held.released.unwrap_or(until));
                    held.not_before = now;
                    held.refusals = 0;
                }
            }
            Settle::Ack | Settle::Release(_) => {}
        }
        self.plan(number);
    }

    /// Gives back everything that is held and not settled.
    pub(crate) fn let_go(&mut self, now: Instant) {
        self.deliveries.clear();
        let mut numbers: Vec<_> = self.messages.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(held) = self.messages.get_mut(&number) {
                held.open = 0;
                if held.goal == Goal::Hide {
                    held.goal = Goal::Show(now);
                    held.not_before = now;
                }
            }
            self.plan(number);
        }
    }

    /// From now on nothing is entered any more.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether SQS knows everything that there will be to know.
    pub(crate) fn is_done(&self) -> bool {
        self.closed && self.messages.is_empty()
    }

    /// How many messages SQS has not been told about, because it refused to hear it.
    pub(crate) fn given_up(&self) -> usize {
        self.given_up
    }

    /// How many messages SQS still holds although they are settled.
    pub(crate) fn deletes_waiting(&self) -> usize {
        self.deletes.len()
    }

    /// How many messages are held.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// When the next call of a kind has to be made.
    pub(crate) fn next_call_at(&self, kind: CallKind) -> Option<Instant> {
        self.agenda(kind).first().map(|(at, _)| *at)
    }

    /// Whether a batch of this kind would be full.
    pub(crate) fn fills_a_batch(&self, kind: CallKind, now: Instant) -> bool {
        self.agenda(kind)
            .iter()
            .nth(BATCH - 1)
            .is_some_and(|(at, _)| *at <= now)
    }

    fn agenda(&self, kind: CallKind) -> &BTreeSet<(Instant, u64)> {
        match kind {
            CallKind::Delete => &self.deletes,
            CallKind::ChangeVisibility => &self.changes,
        }
    }

    /// Takes the next call of a kind, if one is due: a few calls of few entries or one of ten are
    /// the settler's choice. Its messages are in no other call until
    /// [`answered`](Self::answered) or [`unanswered`](Self::unanswered).
    pub(crate) fn next_call(&mut self, kind: CallKind, now: Instant) -> Option<Call> {
        while self.next_call_at(kind).is_some_and(|at| at <= now) {
            let entries: Vec<_> = (self.candidates(kind, now).into_iter())
                .filter_map(|number| self.take(number, kind, now))
                .collect();
            if !entries.is_empty() {
                return Some(Call { kind, entries });
            }
        }
        None
    }

    fn candidates(&self, kind: CallKind, now: Instant) -> Vec<u64> {
        // What has to be extended a little later goes along in the same batch.
        let horizon = match kind {
            CallKind::Delete => now,
            CallKind::ChangeVisibility => now + self.visibility / 8,
        };
        (self.agenda(kind).iter())
            .take_while(|(at, _)| *at <= horizon)
            .filter(|(at, number)| *at <= now || self.is_hidden(*number))
            .take(BATCH)
            .map(|(_, number)| *number)
            .collect()
    }

    fn is_hidden(&self, number: u64) -> bool {
        self.messages
            .get(&number)
            .is_some_and(|held| !matches!(held.goal, Goal::Show(_)))
    }

    fn take(&mut self, number: u64, kind: CallKind, now: Instant) -> Option<Entry> {
        let held = self.messages.get_mut(&number)?;
        let may_hide = (held.received_at + LONGEST_HIDDEN).saturating_duration_since(now);
        let wish = match (kind, held.goal) {
            (CallKind::Delete, _) => Wish::Delete,
            (CallKind::ChangeVisibility, Goal::Show(until)) => {
                let wait = until.saturating_duration_since(now).min(may_hide);
                Wish::Show {
                    after_seconds: seconds_up(wait),
                }
            }
            (CallKind::ChangeVisibility, _) => {
                let seconds = self.visibility.min(may_hide).as_secs();
                if seconds == 0 {
                    warn!(
                        message_id = %held.id,
                        "a message has been handled for 12 hours, the most that SQS hides it; it will be delivered again"
                    );
                    held.extend_at = None;
                    self.plan(number);
                    return None;
                }
                Wish::Hide {
                    for_seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
                }
            }
        };
        held.under_way = true;
        let handle = Arc::clone(&held.handle);
        self.plan(number);
        Some(Entry {
            number,
            handle,
            wish,
        })
    }

    /// Enters what SQS said to one entry of a call that was sent at `sent`.
    pub(crate) fn answered(&mut self, entry: &Entry, answer: &Answer, sent: Instant, now: Instant) {
        let number = entry.number;
        let Some(held) = self.messages.get_mut(&number) else {
            return;
        };
        held.under_way = false;
        // Received again while the call was under way: what it did to the old receipt is no answer
        // for the new one. If it changed anything, extending at once puts that right.
        let superseded = !Arc::ptr_eq(&held.handle, &entry.handle);
        if superseded {
            if entry.wish != Wish::Delete && held.extend_at.is_some() {
                held.extend_at = Some(now);
            }
            return self.plan(number);
        }
        match answer {
            Answer::Done => match entry.wish {
                Wish::Delete | Wish::Show { .. } => held.goal = Goal::Gone,
                Wish::Hide { for_seconds } => {
                    held.refusals = 0;
                    let whole = Duration::from_secs(for_seconds.into()) >= self.visibility;
                    held.extend_at = whole.then_some(sent + self.visibility / 2);
                }
            },
            // The receipt has ended: the message is deleted or shows again, with a new handle.
            Answer::Lost(reason) => {
                debug!(message_id = %held.id, %reason, ?entry.wish, "a receipt handle has ended");
                match entry.wish {
                    Wish::Hide { .. } => held.extend_at = None,
                    Wish::Delete | Wish::Show { .. } => held.goal = Goal::Gone,
                }
            }
            Answer::Failed { reason, retriable } => {
                held.refusals += 1;
                if *retriable && held.refusals < MAX_REFUSALS {
                    let again = now + RETRY.after(held.refusals);
                    match entry.wish {
                        Wish::Hide { .. } => held.extend_at = Some(again),
                        Wish::Delete | Wish::Show { .. } => held.not_before = again,
                    }
                } else {
                    warn!(
                        message_id = %held.id,
                        %reason,
                        attempts = held.refusals,
                        wish = ?entry.wish,
                        "SQS keeps refusing a message's settlement; it will be delivered again"
                    );
                    match entry.wish {
                        Wish::Hide { .. } => held.extend_at = None,
                        Wish::Delete | Wish::Show { .. } => {
                            held.goal = Goal::Gone;
                            self.given_up += 1;
                        }
                    }
                }
            }
        }
        self.plan(number);
    }

    /// Puts the entries of a call back that SQS did not answer, or not for a reason of theirs.
    pub(crate) fn unanswered(&mut self, entries: &[Entry]) {
        for entry in entries {
            if let Some(held) = self.messages.get_mut(&entry.number) {
                held.under_way = false;
            }
            self.plan(entry.number);
        }
    }

    /// Puts a message where it belongs now: into the agendas, or out of the ledger.
    fn plan(&mut self, number: u64) {
        let Some(held) = self.messages.get_mut(&number) else {
            return;
        };
        let (delete, change) = match held.goal {
            _ if held.under_way => (None, None),
            Goal::Gone => (None, None),
            Goal::Hide => (None, held.extend_at),
            // A settled message stays hidden until SQS has answered: were it extended no longer, a
            // slow answer would let it show before its time.
            Goal::Delete => (Some(held.not_before), held.extend_at),
            // That call changes the visibility itself.
            Goal::Show(_) => (None, Some(held.not_before)),
        };
        move_in(&mut self.deletes, &mut held.planned_delete, delete, number);
        move_in(&mut self.changes, &mut held.planned_change, change, number);
        if held.goal == Goal::Gone && held.open == 0 && !held.under_way {
            self.numbers.remove(&held.id);
            self.messages.remove(&number);
        }
    }
}

/// Moves a message within an agenda.
fn move_in(
    agenda: &mut BTreeSet<(Instant, u64)>,
    planned: &mut Option<Instant>,
    at: Option<Instant>,
    number: u64,
) {
    if *planned == at {
        return;
    }
    if let Some(old) = planned.take() {
        agenda.remove(&(old, number));
    }
    if let Some(at) = at {
        agenda.insert((at, number));
        *planned = Some(at);
    }
}

/// Rounded up: "not before" is a promise.
fn seconds_up(wait: Duration) -> u32 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
