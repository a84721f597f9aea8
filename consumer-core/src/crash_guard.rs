//! What the crash guard writes down before handlers begin.

use std::fmt;

use rand::Rng;

/// One run of a consumer in one process; new each time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId([u8; 16]);

impl ProcessId {
    /// A new one. It never follows from a seed: two runs must not be taken for one.
    pub(crate) fn new() -> Self {
        Self(rand::rng().random())
    }

    /// How stores keep it.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Reads back what [`ProcessId::to_bytes`] wrote.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessId({:032x})", u128::from_be_bytes(self.0))
    }
}

/// What is written down of an event while a process runs its handler, and is left where the process
/// has not said how that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Which process.
    pub process: ProcessId,
    /// Whether it runs nothing else meanwhile, so that nothing else can be what ends it.
    pub alone: bool,
    /// How often a process has ended like that before.
    pub crashes: u32,
}

impl Started {
    /// What a process writes down that is about to run the event and nothing else, over what it
    /// found.
    ///
    /// What another process left is the word of one that cannot be asked any more. Our own says
    /// nothing: we are here.
    pub(crate) fn alone(found: Option<Self>, process: ProcessId) -> Self {
        let crashes = found.map_or(0, |found| {
            let ended_alone = found.alone && found.process != process;
            found.crashes.saturating_add(u32::from(ended_alone))
        });
        Self {
            process,
            alone: true,
            crashes,
        }
    }

    /// The event has not been run: what becomes of this process says nothing about it.
    pub(crate) fn not_run(self, crashes: u32) -> Self {
        Self {
            alone: false,
            crashes,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_another_process_that_ran_nothing_else_counts() {
        let (ours, other) = (ProcessId::new(), ProcessId::new());
        let started = |process, alone| Started {
            process,
            alone,
            crashes: 1,
        };
        let crashes = |found| Started::alone(found, ours).crashes;
        assert_eq!(crashes(None), 0);
        assert_eq!(crashes(Some(started(other, false))), 1, "it ran in company");
        assert_eq!(crashes(Some(started(other, true))), 2);
        assert_eq!(crashes(Some(started(ours, true))), 1, "we are here");
        assert_eq!(crashes(Some(started(ours, true).not_run(0))), 0);
    }
}
