//! The crash guard's marks.

use super::database::State;
use crate::crash_guard::{Mark, ProcessId};
use crate::event_key::EventKey;
use crate::store::ConsumerId;

impl State {
    pub(super) fn mark(
        &mut self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Vec<bool> {
        let ours = Mark {
            process,
            alone: false,
            crashes: 0,
        };
        let mark = |key: &EventKey| {
            let mark = self.marks.entry((consumer, key.clone()));
            *mark.or_insert(ours) == ours
        };
        keys.iter().map(mark).collect()
    }

    pub(super) fn unmark(&mut self, consumer: ConsumerId, process: ProcessId, key: &EventKey) {
        let row = (consumer, key.clone());
        if self.marks.get(&row).is_some_and(|m| m.process == process) {
            self.marks.remove(&row);
        }
    }
}
