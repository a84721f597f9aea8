//! Events whose day is forgotten, too far ahead, or not to be read: the unit holds no key of theirs.

use super::Workshop;
use super::progress::Progress;
use super::run::Trouble;
use super::work::Work;
use crate::consumer::item::{Fate, Item};
use crate::consumer::lag_guard::{Finding, Lag};
use crate::day::Day;
use crate::dead_letter::{DeadLetter, DeadLetterKind};
use crate::event_key::EventKey;
use crate::handler::error_chain;
use crate::identify::Untimed;
use crate::store::Store;

impl<S: Store, W: Work<S>> Workshop<S, W> {
    /// A straggler is set aside; a backlog is not.
    pub(super) fn too_late(
        &self,
        (at, item): (usize, &Item),
        key: &EventKey,
        (day, floor): (Day, Day),
        progress: &mut Progress<S::Row>,
    ) -> Result<Fate, Trouble> {
        let now = self.pulse.now();
        let today = Day::of(now);
        let risen = Day::of(now + self.horizon).number() - today.number();
        let here = item.received_at.elapsed();
        match (self.guard).judge(item.assignment(), floor.plus(risen), here) {
            Finding::Straggler => {}
            Finding::Unsure => return Ok(Fate::Unsure),
            Finding::Backlog { youngest } => {
                return Err(Trouble::Lagging(Lag {
                    position: item.delivery.position.to_string(),
                    youngest,
                    today,
                    floor,
                    horizon: self.horizon,
                }));
            }
        }
        let error = format!(
            "its day is {day}, and the inbox remembers nothing before {floor}: whether it took \
             effect before, nobody can say"
        );
        progress.set_aside_unclaimed(at, letter(item, key, DeadLetterKind::TooLate, &error));
        // An attempt of when its day was still remembered may have left a retry row.
        progress.forget_for_sure(at, key);
        Ok(Fate::TooLate)
    }
}

/// A day that no clock shows yet.
pub(super) fn future<R: Send + Sync>(
    (at, item): (usize, &Item),
    key: &EventKey,
    (day, last): (Day, Day),
    progress: &mut Progress<R>,
) -> Fate {
    let error =
        format!("its day is {day}, and {last} is the last one that the database's clock allows");
    progress.set_aside_unclaimed(at, letter(item, key, DeadLetterKind::Future, &error));
    Fate::Future
}

/// Without its day nobody knows where it would be remembered.
pub(super) fn untimed<R: Send + Sync>(
    (at, item): (usize, &Item),
    key: &EventKey,
    untimed: &Untimed,
    progress: &mut Progress<R>,
) -> Fate {
    let error = error_chain(untimed);
    progress.set_aside_unclaimed(at, letter(item, key, DeadLetterKind::Poison, &error));
    Fate::Untimed
}

fn letter(item: &Item, key: &EventKey, kind: DeadLetterKind, error: &str) -> DeadLetter {
    DeadLetter::new(&item.delivery, Some(key.clone()), kind, 0, error)
        .with_fingerprint(item.fingerprint)
}
