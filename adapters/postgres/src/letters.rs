//! Dead letters, for operators and for the runtime's redrives. Operators do not open a consumer, which
//! would find out about a pooler, so no statement here is kept by name.

use std::time::Duration;

use async_trait::async_trait;
use oneffect_core::{
    ConsumerId, DeadLetterKind, DeadLetters, Letter, LetterFilter, LetterId, LetterRow,
    LetterSummary, RedriveAs, Refusal, Requested, RequestedRedrive, StoreError, micros,
};
use sqlx::Row;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;

use crate::blame::misplaced;
use crate::retry::{LONGEST_WAIT, storable};
use crate::store::Postgres;
use crate::transaction::heard;

/// `WITH found AS (..)`, and a statement that uses it.
macro_rules! with_found {
    ($statement:expr) => {
        concat!(
            "WITH found AS (",
            include_str!("queries/found_letters.sql"),
            ") ",
            $statement
        )
    };
}

impl Postgres {
    /// All rows of a statement about the letters that a filter finds, in a transaction of its own.
    async fn for_found(
        &self,
        sql: &'static str,
        filter: &LetterFilter,
        bind: impl for<'q> FnOnce(
            Query<'q, sqlx::Postgres, PgArguments>,
        ) -> Query<'q, sqlx::Postgres, PgArguments>
        + Send,
    ) -> Result<Vec<PgRow>, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let query = bind(bind_filter(sqlx::query(sql), filter)).persistent(false);
        let rows = heard!(
            transaction,
            "dead letters",
            query.fetch_all(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.commit().await?;
        Ok(rows)
    }
}

fn bind_filter<'q>(
    query: Query<'q, sqlx::Postgres, PgArguments>,
    filter: &LetterFilter,
) -> Query<'q, sqlx::Postgres, PgArguments> {
    let ids: Vec<i64> = filter.ids.iter().map(|id| id.0).collect();
    let kinds: Vec<&'static str> = filter.kinds.iter().map(|kind| kind.as_str()).collect();
    query
        .bind(filter.consumer.as_deref().map(storable))
        .bind((!ids.is_empty()).then_some(ids))
        .bind((!kinds.is_empty()).then_some(kinds))
        .bind(filter.since.and_then(micros))
        .bind(filter.until.and_then(micros))
        .bind(filter.error.as_deref().map(storable))
        .bind(filter.key.as_ref().map(|key| key.to_vec()))
        .bind(filter.event_id.as_ref().map(|id| Vec::from(id.to_bytes())))
        .bind((filter.tenant.as_ref()).map(|tenant| tenant.as_str().as_bytes().to_vec()))
        .bind(filter.source.as_deref().map(storable))
        .bind(filter.after.map(|after| after.0))
        .bind(filter.limit.map(i64::from))
}

#[async_trait]
impl DeadLetters for Postgres {
    async fn list_letters(&self, filter: &LetterFilter) -> Result<Vec<LetterSummary>, StoreError> {
        let sql = with_found!(include_str!("queries/list_letters.sql"));
        let rows = self.for_found(sql, filter, |query| query).await?;
        let summary = |row: &PgRow| summary_row(row).map_err(misplaced)?.into_summary();
        rows.iter().map(summary).collect()
    }

    async fn show_letter(&self, id: LetterId) -> Result<Option<Letter>, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let row = heard!(
            transaction,
            "dead letters",
            sqlx::query(include_str!("queries/letter.sql"))
                .bind(id.0)
                .persistent(false)
                .fetch_optional(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.rollback().await;
        let row = row.map(|row| letter_row(&row)).transpose();
        row.map_err(misplaced)?
            .map(LetterRow::into_letter)
            .transpose()
    }

    async fn discard_letters(&self, filter: &LetterFilter) -> Result<u64, StoreError> {
        let sql = with_found!(
            "DELETE FROM dead_letter USING found WHERE dead_letter.id = found.id RETURNING 1"
        );
        Ok(self.for_found(sql, filter, |query| query).await?.len() as u64)
    }

    async fn request_redrive(
        &self,
        filter: &LetterFilter,
        redrive_as: RedriveAs,
    ) -> Result<Requested, StoreError> {
        let sql = with_found!(include_str!("queries/request_redrive.sql"));
        let as_new = redrive_as == RedriveAs::New;
        let rows = self
            .for_found(sql, filter, |query| query.bind(as_new))
            .await?;
        let mut answer = Requested::default();
        for row in rows {
            match refusal(&row, redrive_as).map_err(misplaced)? {
                None => answer.requested += 1,
                Some(refused) => answer.refused.push(refused),
            }
        }
        Ok(answer)
    }

    async fn cancel_redrive(&self, filter: &LetterFilter) -> Result<u64, StoreError> {
        let sql = with_found!(
            "UPDATE dead_letter SET redrive_requested_at = NULL, redrive_due_at = NULL \
             FROM found WHERE dead_letter.id = found.id \
             AND dead_letter.redrive_requested_at IS NOT NULL RETURNING 1"
        );
        Ok(self.for_found(sql, filter, |query| query).await?.len() as u64)
    }

    async fn requested_redrives(
        &self,
        consumer: ConsumerId,
        after: Option<LetterId>,
        limit: u32,
    ) -> Result<Vec<RequestedRedrive>, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let rows = heard!(
            transaction,
            "dead letters",
            sqlx::query(include_str!("queries/requested_redrives.sql"))
                .bind(consumer.0)
                .bind(after.map_or(0, |after| after.0))
                .bind(i64::from(limit))
                .persistent(false)
                .fetch_all(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.rollback().await;
        rows.iter().map(requested).collect()
    }

    async fn redrive_failed(
        &self,
        id: LetterId,
        error: &str,
        wait: Option<Duration>,
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin_plain().await?;
        heard!(
            transaction,
            "dead letters",
            sqlx::query(include_str!("queries/redrive_failed.sql"))
                .bind(id.0)
                .bind(storable(error))
                .bind(wait.map(|wait| wait.min(LONGEST_WAIT).as_secs_f64()))
                .persistent(false)
                .execute(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.commit().await
    }

    async fn sweep_retries(&self) -> Result<u64, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let swept = heard!(
            transaction,
            "old attempts",
            sqlx::query(include_str!("queries/sweep_retries.sql"))
                .persistent(false)
                .execute(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.commit().await?;
        Ok(swept.rows_affected())
    }
}

/// Why a letter was not marked; `None` when it was.
fn refusal(row: &PgRow, redrive_as: RedriveAs) -> sqlx::Result<Option<(LetterId, Refusal)>> {
    let kind: &str = row.try_get("kind")?;
    let is_cut: bool = row.try_get("is_cut")?;
    let kind = DeadLetterKind::parse(kind);
    let refusal = kind.and_then(|kind| Refusal::of(kind, is_cut, redrive_as));
    Ok(refusal
        .zip(Some(LetterId(row.try_get("id")?)))
        .map(|(refusal, id)| (id, refusal)))
}

fn requested(row: &PgRow) -> Result<RequestedRedrive, StoreError> {
    let read = || -> sqlx::Result<(LetterRow, f64)> {
        let letter = LetterRow {
            id: row.try_get("id")?,
            ordered: row.try_get("ordered")?,
            message_group: row.try_get("message_group")?,
            lane: row.try_get("lane")?,
            redrive_as_new: row.try_get("redrive_as_new")?,
            redrive_attempts: row.try_get("redrive_attempts")?,
            ..place_row(row)?
        };
        Ok((letter, row.try_get("wait")?))
    };
    let (letter, wait) = read().map_err(misplaced)?;
    letter.into_requested(Duration::try_from_secs_f64(wait).unwrap_or_default())
}

/// Which event it is, and where it was.
fn place_row(row: &PgRow) -> sqlx::Result<LetterRow> {
    let key: Option<Vec<u8>> = row.try_get("raw_key")?;
    Ok(LetterRow {
        raw_key: key.map(Into::into),
        event_id: row.try_get("event_id")?,
        tenant: row.try_get("tenant")?,
        source: row.try_get("source")?,
        log_partition: row.try_get("log_partition")?,
        log_offset: row.try_get("log_offset")?,
        message_id: row.try_get("message_id")?,
        ..LetterRow::default()
    })
}

/// What lists and whole letters have in common.
fn common_row(row: &PgRow) -> sqlx::Result<LetterRow> {
    Ok(LetterRow {
        id: row.try_get("id")?,
        consumer: row.try_get("consumer_name")?,
        kind: row.try_get("kind")?,
        payload_length: row.try_get("payload_length")?,
        first_at: row.try_get("first_at")?,
        last_at: row.try_get("last_at")?,
        deliveries: row.try_get("deliveries")?,
        attempts: row.try_get("attempts")?,
        error: row.try_get("error")?,
        redrive_requested_at: row.try_get("redrive_requested_at")?,
        redrive_due_at: row.try_get("redrive_due_at")?,
        redrive_attempts: row.try_get("redrive_attempts")?,
        redrive_as_new: row.try_get("redrive_as_new")?,
        ..place_row(row)?
    })
}

fn summary_row(row: &PgRow) -> sqlx::Result<LetterRow> {
    Ok(LetterRow {
        is_cut: row.try_get("is_cut")?,
        ..common_row(row)?
    })
}

pub(crate) fn letter_row(row: &PgRow) -> sqlx::Result<LetterRow> {
    let payload: Option<Vec<u8>> = row.try_get("payload")?;
    Ok(LetterRow {
        source_key: row.try_get("source_key")?,
        fingerprint: row.try_get("fingerprint")?,
        settled_fingerprint: row.try_get("settled_fingerprint")?,
        deduplication_id: row.try_get("deduplication_id")?,
        ordered: row.try_get("ordered")?,
        message_group: row.try_get("message_group")?,
        payload: payload.map(Into::into),
        headers: row.try_get("headers")?,
        raw_key_length: row.try_get("raw_key_length")?,
        headers_dropped: row.try_get("headers_dropped")?,
        published_at: row.try_get("published_at")?,
        ..common_row(row)?
    })
}
