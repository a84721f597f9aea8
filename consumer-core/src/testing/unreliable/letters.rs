//! Dead letters of a store that fails.

use std::time::Duration;

use async_trait::async_trait;

use super::{Call, Unreliable};
use crate::letters::{
    DeadLetters, Letter, LetterFilter, LetterId, LetterSummary, RedriveAs, Requested,
    RequestedRedrive,
};
use crate::store::{ConsumerId, Store, StoreError};

#[async_trait]
impl<S: Store> DeadLetters for Unreliable<S> {
    async fn list_letters(&self, filter: &LetterFilter) -> Result<Vec<LetterSummary>, StoreError> {
        self.store.list_letters(filter).await
    }

    async fn show_letter(&self, id: LetterId) -> Result<Option<Letter>, StoreError> {
        self.store.show_letter(id).await
    }

    async fn discard_letters(&self, filter: &LetterFilter) -> Result<u64, StoreError> {
        self.store.discard_letters(filter).await
    }

    async fn request_redrive(
        &self,
        filter: &LetterFilter,
        redrive_as: RedriveAs,
    ) -> Result<Requested, StoreError> {
        self.store.request_redrive(filter, redrive_as).await
    }

    async fn cancel_redrive(&self, filter: &LetterFilter) -> Result<u64, StoreError> {
        self.store.cancel_redrive(filter).await
    }

    async fn requested_redrives(
        &self,
        consumer: ConsumerId,
        after: Option<LetterId>,
        limit: u32,
    ) -> Result<Vec<RequestedRedrive>, StoreError> {
        self.store.requested_redrives(consumer, after, limit).await
    }

    async fn redrive_failed(
        &self,
        id: LetterId,
        error: &str,
        wait: Option<Duration>,
    ) -> Result<(), StoreError> {
        self.faults.call(Call::RedriveFailed)?;
        self.store.redrive_failed(id, error, wait).await
    }

    async fn sweep_retries(&self) -> Result<u64, StoreError> {
        self.store.sweep_retries().await
    }
}
