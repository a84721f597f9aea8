//! What becomes of events whose day is forgotten.

use std::time::SystemTime;

use crate::store::Late;

/// What becomes of an event whose own day lies below the floor: whether it took effect before,
/// nobody can say.
///
/// Nor is being late a proof of it. Where a consumer lags behind its whole stream by more than the
/// inbox remembers, what is late is a backlog that was never handled; then it stops with
/// [`RunError::Lagging`](crate::RunError::Lagging), and asks for one of the other answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LatePolicy {
    /// It is set aside, and can be sent through again by hand. The default.
    #[default]
    DeadLetter,
    /// It is handled, as if it had never been seen, and remembered from today on, so that its
    /// redeliveries are duplicates. **An event that took effect before its day was forgotten takes
    /// effect again.**
    ProcessAsNew,
    /// As [`LatePolicy::ProcessAsNew`] until this time, and set aside from then on: for working
    /// through old history once, without leaving the door open. By the database's clock, where the
    /// store tells it, to within a minute.
    ProcessAsNewUntil(SystemTime),
}

impl LatePolicy {
    /// What a unit that begins now is to do.
    pub(crate) fn at(self, now: SystemTime) -> Late {
        match self {
            Self::ProcessAsNew => Late::AsNew,
            Self::ProcessAsNewUntil(until) if now < until => Late::AsNew,
            Self::DeadLetter | Self::ProcessAsNewUntil(_) => Late::Refuse,
        }
    }
}
