//! Dead letters in memory.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::MemoryStore;
use super::database::State;
use crate::dead_letter::DeadLetter;
use crate::event_key::EventKey;
use crate::letters::{
    DeadLetters, Letter, LetterFilter, LetterId, LetterSummary, RedriveAs, RedriveRequest, Refusal,
    Requested, RequestedRedrive,
};
use crate::store::{ConsumerId, StoreError};

/// A letter, and what the database adds to it.
#[derive(Clone, Debug)]
pub(super) struct LetterRow {
    pub(super) id: LetterId,
    pub(super) consumer: ConsumerId,
    pub(super) letter: DeadLetter,
    pub(super) deliveries: u32,
    first_at: SystemTime,
    last_at: SystemTime,
    redrive: Option<(RedriveRequest, Instant)>,
}

impl LetterRow {
    pub(super) fn new(id: LetterId, consumer: ConsumerId, letter: DeadLetter) -> Self {
        let now = SystemTime::now();
        Self {
            id,
            consumer,
            letter,
            deliveries: 1,
            first_at: now,
            last_at: now,
            redrive: None,
        }
    }

    pub(super) fn again(&mut self) {
        self.deliveries += 1;
        self.last_at = SystemTime::now();
    }

    fn wait(&self) -> Option<Duration> {
        let (_, due) = self.redrive?;
        Some(due.saturating_duration_since(Instant::now()))
    }
}

impl State {
    /// All letters in the order of their ids.
    pub(super) fn letters_by_id(&self) -> Vec<&LetterRow> {
        let mut rows: Vec<&LetterRow> = self.dead_letters.values().collect();
        rows.sort_by_key(|row| row.id);
        rows
    }

    fn letter_mut(&mut self, id: LetterId) -> Option<&mut LetterRow> {
        self.dead_letters.values_mut().find(|row| row.id == id)
    }

    fn consumer_name(&self, consumer: ConsumerId) -> Box<str> {
        let mut consumers = self.consumers.iter();
        let found = consumers.find(|(_, known)| known.id == consumer);
        found.map_or_else(Box::default, |(name, _)| name.as_str().into())
    }

    fn found(&self, filter: &LetterFilter) -> Vec<LetterId> {
        let rows = self.letters_by_id().into_iter();
        let found = rows
            .filter(|row| self.fits(filter, row))
            .map(|row| row.id)
            .take(filter.limit.map_or(usize::MAX, |limit| limit as usize));
        found.collect()
    }

    fn fits(&self, filter: &LetterFilter, row: &LetterRow) -> bool {
        let letter = &row.letter;
        let event = letter.event.as_ref();
        let name = self.consumer_name(row.consumer);
        let error = letter.error.to_lowercase();
        filter.consumer.as_ref().is_none_or(|want| *want == name)
            && (filter.ids.is_empty() || filter.ids.contains(&row.id))
            && (filter.kinds.is_empty() || filter.kinds.contains(&letter.kind))
            && filter.since.is_none_or(|since| row.first_at >= since)
            && filter.until.is_none_or(|until| row.first_at < until)
            && (filter.error.as_ref()).is_none_or(|text| error.contains(&text.to_lowercase()))
            && (filter.key.as_ref()).is_none_or(|key| letter.key.as_ref() == Some(key))
            && (filter.event_id.as_ref()).is_none_or(|id| event.is_some_and(|key| key.id == *id))
            && (filter.tenant.as_ref())
                .is_none_or(|tenant| event.is_some_and(|key| key.tenant == *tenant))
            && (filter.source.as_ref()).is_none_or(|source| letter.position.source() == &**source)
            && filter.after.is_none_or(|after| row.id > after)
    }

    /// The letter, if it may be redriven now.
    pub(super) fn due_letter(&self, id: LetterId, consumer: ConsumerId) -> Option<Letter> {
        let row = self.dead_letters.values().find(|row| row.id == id)?;
        let is_due = row.consumer == consumer && row.wait()?.is_zero();
        let lane = row.letter.lane();
        let is_behind = lane.is_some()
            && self.dead_letters.values().any(|other| {
                other.consumer == consumer
                    && other.id < id
                    && other.redrive.is_some()
                    && other.letter.lane() == lane
            });
        (is_due && !is_behind).then(|| self.whole(row))
    }

    fn whole(&self, row: &LetterRow) -> Letter {
        Letter {
            id: row.id,
            consumer: self.consumer_name(row.consumer),
            letter: row.letter.clone(),
            first_at: row.first_at,
            last_at: row.last_at,
            deliveries: row.deliveries,
            redrive: row.redrive.map(|(request, _)| request),
        }
    }

    fn summary(&self, row: &LetterRow) -> LetterSummary {
        let letter = &row.letter;
        let kept = letter.payload.as_ref().map(|payload| payload.len() as u64);
        LetterSummary {
            id: row.id,
            consumer: self.consumer_name(row.consumer),
            kind: letter.kind,
            event: letter.event.clone(),
            position: letter.position.clone(),
            key: letter.key.clone(),
            payload_len: letter.cut.payload.or(kept),
            is_cut: !letter.cut.is_nothing(),
            attempts: letter.attempts,
            error: letter.error.clone(),
            first_at: row.first_at,
            last_at: row.last_at,
            deliveries: row.deliveries,
            redrive: row.redrive.map(|(request, _)| request),
        }
    }
}

#[async_trait]
impl DeadLetters for MemoryStore {
    async fn list_letters(&self, filter: &LetterFilter) -> Result<Vec<LetterSummary>, StoreError> {
        yield_now().await;
        let state = self.up()?;
        let found = state.found(filter);
        let rows = state.letters_by_id().into_iter();
        let found = rows.filter(|row| found.contains(&row.id));
        Ok(found.map(|row| state.summary(row)).collect())
    }

    async fn show_letter(&self, id: LetterId) -> Result<Option<Letter>, StoreError> {
        yield_now().await;
        let state = self.up()?;
        let row = state.dead_letters.values().find(|row| row.id == id);
        Ok(row.map(|row| state.whole(row)))
    }

    async fn discard_letters(&self, filter: &LetterFilter) -> Result<u64, StoreError> {
        yield_now().await;
        let mut state = self.up()?;
        let found = state.found(filter);
        state.dead_letters.retain(|_, row| !found.contains(&row.id));
        Ok(found.len() as u64)
    }

    async fn request_redrive(
        &self,
        filter: &LetterFilter,
        redrive_as: RedriveAs,
    ) -> Result<Requested, StoreError> {
        yield_now().await;
        let mut state = self.up()?;
        let mut answer = Requested::default();
        for id in state.found(filter) {
            let Some(row) = state.letter_mut(id) else {
                continue;
            };
            let is_cut = !row.letter.cut.is_nothing();
            if let Some(refusal) = Refusal::of(row.letter.kind, is_cut, redrive_as) {
                answer.refused.push((id, refusal));
                continue;
            }
            let now = SystemTime::now();
            let request = RedriveRequest {
                requested_at: now,
                redrive_as,
                attempts: 0,
                due_at: now,
            };
            row.redrive = Some((request, Instant::now()));
            answer.requested += 1;
        }
        Ok(answer)
    }

    async fn cancel_redrive(&self, filter: &LetterFilter) -> Result<u64, StoreError> {
        yield_now().await;
        let mut state = self.up()?;
        let mut cancelled = 0;
        for id in state.found(filter) {
            if let Some(row) = state.letter_mut(id) {
                cancelled += u64::from(row.redrive.take().is_some());
            }
        }
        Ok(cancelled)
    }

    async fn requested_redrives(
        &self,
        consumer: ConsumerId,
        after: Option<LetterId>,
        limit: u32,
    ) -> Result<Vec<RequestedRedrive>, StoreError> {
        yield_now().await;
        let state = self.up()?;
        let rows = state.letters_by_id().into_iter();
        let requested = rows
            .filter(|row| row.consumer == consumer && after.is_none_or(|after| row.id > after))
            .filter_map(|row| {
                let (request, _) = row.redrive?;
                Some(RequestedRedrive {
                    id: row.id,
                    event: row.letter.event.clone(),
                    position: row.letter.position.clone(),
                    order: row.letter.order.clone(),
                    key: row.letter.key.clone(),
                    lane: row.letter.lane(),
                    redrive_as: request.redrive_as,
                    attempts: request.attempts,
                    wait: row.wait()?,
                })
            });
        Ok(requested.take(limit as usize).collect())
    }

    async fn redrive_failed(
        &self,
        id: LetterId,
        error: &str,
        wait: Option<Duration>,
    ) -> Result<(), StoreError> {
        yield_now().await;
        let mut state = self.up()?;
        if let Some(row) = state.letter_mut(id) {
            row.letter.attempts += 1;
            row.letter.error = error.into();
            row.last_at = SystemTime::now();
            row.redrive = row.redrive.zip(wait).map(|((mut request, _), wait)| {
                request.attempts += 1;
                request.due_at = SystemTime::now() + wait;
                (request, Instant::now() + wait)
            });
        }
        Ok(())
    }

    async fn sweep_retries(&self) -> Result<u64, StoreError> {
        yield_now().await;
        let mut state = self.up()?;
        let State { retries, inbox, .. } = &mut *state;
        let before = retries.len();
        let settled = |(consumer, key): &(ConsumerId, EventKey)| {
            (inbox.keys()).any(|(owner, settled, _)| owner == consumer && settled == key)
        };
        retries.retain(|key, _| !settled(key));
        Ok((before - retries.len()) as u64)
    }
}
