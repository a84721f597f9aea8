//! Dead letters, for operators and for the runtime's redrives.

use std::time::Duration;

use async_trait::async_trait;
use oneffect_core::{
    ConsumerId, DeadLetters, Letter, LetterFilter, LetterId, LetterRow, LetterSummary, RedriveAs,
    Refusal, Requested, RequestedRedrive, StoreError, micros,
};
use sqlx::Row;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};

use crate::blame::misplaced;
use crate::retry::{LONGEST_WAIT, storable};
use crate::store::Sqlite;

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

impl Sqlite {
    /// All rows of a statement about the letters that a filter finds, in a transaction of its own.
    async fn for_found(
        &self,
        sql: &'static str,
        filter: &LetterFilter,
    ) -> Result<Vec<SqliteRow>, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let query = bind_filter(sqlx::query(sql), filter);
        let rows = query
            .fetch_all(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)?;
        Ok(rows)
    }
}

fn bind_filter<'q>(
    query: Query<'q, sqlx::Sqlite, SqliteArguments>,
    filter: &LetterFilter,
) -> Query<'q, sqlx::Sqlite, SqliteArguments> {
    // A list of kinds prints as a JSON array: there is nothing in them to escape.
    let kinds: Vec<&str> = filter.kinds.iter().map(|kind| kind.as_str()).collect();
    query
        .bind(filter.consumer.as_deref().map(storable))
        .bind((!filter.ids.is_empty()).then(|| json_ids(&filter.ids)))
        .bind((!kinds.is_empty()).then(|| format!("{kinds:?}")))
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
impl DeadLetters for Sqlite {
    async fn list_letters(&self, filter: &LetterFilter) -> Result<Vec<LetterSummary>, StoreError> {
        let sql = with_found!(include_str!("queries/list_letters.sql"));
        let rows = self.for_found(sql, filter).await?;
        let summary = |row: &SqliteRow| summary_row(row).map_err(misplaced)?.into_summary();
        rows.iter().map(summary).collect()
    }

    async fn show_letter(&self, id: LetterId) -> Result<Option<Letter>, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let row = sqlx::query(include_str!("queries/letter.sql"))
            .bind(id.0)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction.rollback().await;
        let row = row.map(|row| letter_row(&row)).transpose();
        row.map_err(misplaced)?
            .map(LetterRow::into_letter)
            .transpose()
    }

    async fn discard_letters(&self, filter: &LetterFilter) -> Result<u64, StoreError> {
        let sql =
            with_found!("DELETE FROM dead_letter WHERE id IN (SELECT id FROM found) RETURNING 1");
        Ok(self.for_found(sql, filter).await?.len() as u64)
    }

    async fn request_redrive(
        &self,
        filter: &LetterFilter,
        redrive_as: RedriveAs,
    ) -> Result<Requested, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let found = with_found!(include_str!("queries/list_letters.sql"));
        let rows = bind_filter(sqlx::query(found), filter)
            .fetch_all(&mut *transaction)
            .await
            .map_err(misplaced)?;
        let mut refused = Vec::new();
        let mut marked = Vec::new();
        for row in rows {
            let letter = summary_row(&row).map_err(misplaced)?.into_summary()?;
            match Refusal::of(letter.kind, letter.is_cut, redrive_as) {
                None => marked.push(letter.id),
                Some(refusal) => refused.push((letter.id, refusal)),
            }
        }
        sqlx::query(include_str!("queries/request_redrive.sql"))
            .bind(json_ids(&marked))
            .bind(redrive_as == RedriveAs::New)
            .execute(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)?;
        Ok(Requested {
            requested: marked.len() as u64,
            refused,
        })
    }

    async fn cancel_redrive(&self, filter: &LetterFilter) -> Result<u64, StoreError> {
        let sql = with_found!(
            "UPDATE dead_letter SET redrive_requested_at = NULL, redrive_due_at = NULL \
             WHERE id IN (SELECT id FROM found) AND redrive_requested_at IS NOT NULL RETURNING 1"
        );
        Ok(self.for_found(sql, filter).await?.len() as u64)
    }

    async fn requested_redrives(
        &self,
        consumer: ConsumerId,
        after: Option<LetterId>,
        limit: u32,
    ) -> Result<Vec<RequestedRedrive>, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let rows = sqlx::query(include_str!("queries/requested_redrives.sql"))
            .bind(consumer.0)
            .bind(after.map_or(0, |after| after.0))
            .bind(i64::from(limit))
            .fetch_all(&mut *transaction)
            .await
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
        sqlx::query(include_str!("queries/redrive_failed.sql"))
            .bind(id.0)
            .bind(storable(error))
            .bind(wait.map(|wait| wait.min(LONGEST_WAIT).as_secs_f64()))
            .execute(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)
    }

    async fn sweep_retries(&self) -> Result<u64, StoreError> {
        let mut transaction = self.begin_plain().await?;
        let swept = sqlx::query(include_str!("queries/sweep_retries.sql"))
            .execute(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)?;
        Ok(swept.rows_affected())
    }
}

fn json_ids(ids: &[LetterId]) -> String {
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    format!("{ids:?}")
}

fn requested(row: &SqliteRow) -> Result<RequestedRedrive, StoreError> {
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
fn place_row(row: &SqliteRow) -> sqlx::Result<LetterRow> {
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
fn common_row(row: &SqliteRow) -> sqlx::Result<LetterRow> {
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

fn summary_row(row: &SqliteRow) -> sqlx::Result<LetterRow> {
    Ok(LetterRow {
        is_cut: row.try_get("is_cut")?,
        ..common_row(row)?
    })
}

pub(crate) fn letter_row(row: &SqliteRow) -> sqlx::Result<LetterRow> {
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
