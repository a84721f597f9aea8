//! Rows that wait to be written, and whose they are.

use std::collections::BTreeMap;

use crate::handler::error_chain;
use crate::store::{StoreError, Unit};

/// Rows of the events of one batch, each known by the event's place in it.
///
/// A row stays here when it is written, until the unit has ended: what the database undoes with an
/// aborted transaction can be written again without asking the handler.
#[derive(Debug)]
pub(crate) struct Staged<R> {
    /// Ascending by event.
    rows: Vec<R>,
    events: Vec<usize>,
    /// So many of them, from the first on, are written.
    written: usize,
    refused: Vec<Refused>,
}

/// An event whose rows the database does not take.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) event: usize,
    pub(crate) error: String,
}

impl<R: Send + Sync> Staged<R> {
    pub(crate) fn new() -> Self {
        Self {
            rows: Vec::new(),
            events: Vec::new(),
            written: 0,
            refused: Vec::new(),
        }
    }

    /// Adds a row behind those of the event and of all before it.
    pub(crate) fn push(&mut self, event: usize, row: R) {
        let behind = match self.events.last() {
            Some(&last) if last > event => self.events.partition_point(|&other| other <= event),
            _ => self.events.len(),
        };
        // What is written stays in front; its order means nothing any more.
        let at = behind.max(self.written);
        self.events.insert(at, event);
        self.rows.insert(at, row);
    }

    /// An event leaves: its rows will not be written, and those that were are being undone.
    pub(crate) fn drop_rows_of(&mut self, event: usize) {
        self.retain(|other| other != event);
    }

    fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let mut kept = self.events.iter().map(|&event| keep(event));
        self.rows.retain(|_| kept.next().unwrap_or(true));
        let written = &self.events[..self.written];
        self.written = written.iter().filter(|&&event| keep(event)).count();
        self.events.retain(|&event| keep(event));
    }

    /// The rows of each event.
    pub(crate) fn into_rows(self) -> BTreeMap<usize, Vec<R>> {
        let mut by_event: BTreeMap<usize, Vec<R>> = BTreeMap::new();
        for (event, row) in self.events.into_iter().zip(self.rows) {
            by_event.entry(event).or_default().push(row);
        }
        by_event
    }

    /// Writes what waits of the events before this one.
    pub(crate) async fn write_before<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
        event: usize,
    ) -> Result<(), StoreError> {
        let end = self.end_before(event);
        self.write(unit, end).await
    }

    /// Writes what waits.
    pub(crate) async fn write_all<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
    ) -> Result<(), StoreError> {
        self.write(unit, self.rows.len()).await
    }

    async fn write<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
        end: usize,
    ) -> Result<(), StoreError> {
        if self.written < end {
            unit.write(&self.rows[self.written..end]).await?;
            self.written = end;
        }
        Ok(())
    }

    /// As [`Staged::write_before`], but with savepoints: what the database does not take is halved
    /// until the events stand alone whose rows it refuses. Their rows go, and with them those of the
    /// later events of their lanes, which must not take effect before them; all others are written.
    ///
    /// `lanes` tells of each event which lane it is in.
    pub(crate) async fn write_apart<U: Unit<Row = R>>(
        &mut self,
        unit: &mut U,
        before: usize,
        lanes: &[usize],
    ) -> Result<(), StoreError> {
        let mut most = usize::MAX;
        loop {
            let end = self.end_before(before);
            if self.written >= end {
                return Ok(());
            }
            let (part, events) = self.part(end, most);
            unit.savepoint().await?;
            let error = match unit.write(&self.rows[self.written..part]).await {
                Ok(()) => {
                    unit.release_savepoint().await?;
                    self.written = part;
                    continue;
                }
                Err(error @ StoreError::RolledBack(_)) => error,
                Err(error) => return Err(error),
            };
            // Where the store is away this fails too, and says so.
            unit.rollback_to_savepoint().await?;
            if events > 1 {
                most = events / 2;
            } else {
                let event = self.events[self.written];
                let error = error_chain(&error);
                self.refused.push(Refused { event, error });
                self.retain(|other| other < event || lanes[other] != lanes[event]);
                // There may be no other.
                most = usize::MAX;
            }
        }
    }

    /// Where a part ends that holds so many events, and how many it does hold.
    fn part(&self, end: usize, most: usize) -> (usize, usize) {
        let mut count = 0;
        let mut last = None;
        for (at, &event) in self.events.iter().enumerate().take(end).skip(self.written) {
            if last != Some(event) {
                if count == most {
                    return (at, count);
                }
                count += 1;
                last = Some(event);
            }
        }
        (end, count)
    }

    fn end_before(&self, event: usize) -> usize {
        let waiting = &self.events[self.written..];
        self.written + waiting.partition_point(|&other| other < event)
    }

    /// Whether rows were refused since they were last taken.
    pub(crate) fn refuses_any(&self) -> bool {
        !self.refused.is_empty()
    }

    /// The events whose rows were refused since the last call.
    pub(crate) fn take_refused(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.refused)
    }

    /// Whether an event of this lane was refused since then.
    pub(crate) fn refuses(&self, lane: usize, lanes: &[usize]) -> bool {
        self.refused
            .iter()
            .any(|refused| lanes[refused.event] == lane)
    }
}

#[cfg(test)]
mod tests;
