//! What the crash guard writes down.

use super::database::State;
use crate::crash_guard::{ProcessId, Started};
use crate::event_key::EventKey;
use crate::store::ConsumerId;

impl State {
    pub(super) fn note_started(
        &mut self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Vec<bool> {
        let ours = Started {
            process,
            alone: false,
            crashes: 0,
        };
        let note = |key: &EventKey| {
            let known = self.started.entry((consumer, key.clone()));
            *known.or_insert(ours) == ours
        };
        keys.iter().map(note).collect()
    }

    pub(super) fn forget_started(
        &mut self,
        consumer: ConsumerId,
        process: ProcessId,
        key: &EventKey,
    ) {
        let row = (consumer, key.clone());
        if self.started.get(&row).is_some_and(|m| m.process == process) {
            self.started.remove(&row);
        }
    }
}
