//! What the crash guard writes down before handlers begin.

use oneffect_core::{ConsumerId, EventKey, ProcessId, Started, StoreError};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::blame::misplaced;
use crate::keys::{Keys, columns};
use crate::store::Sqlite;
use crate::transaction::Transaction;
use crate::unit::SqliteUnit;

impl Sqlite {
    pub(crate) async fn insert_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<Vec<bool>, StoreError> {
        let sorted = Keys::of(keys);
        let mut transaction = self.begin_plain().await?;
        let rows = sqlx::query(include_str!("queries/note_started.sql"))
            .bind(sorted.to_json())
            .bind(consumer.0)
            .bind(bytes(process))
            .fetch_all(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)?;
        let mut noted = vec![false; keys.len()];
        for row in rows {
            let column = |name| {
                row.try_get::<&[u8], _>(name)
                    .map_err(StoreError::rolled_back)
            };
            if let Some(place) = sorted.place(column("event_id")?, column("tenant")?) {
                noted[place] = true;
            }
        }
        Ok(noted)
    }

    pub(crate) async fn read_started(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
    ) -> Result<Option<Started>, StoreError> {
        let (id, tenant) = columns(key);
        let mut transaction = self.begin_plain().await?;
        let row = sqlx::query(include_str!("queries/find_started.sql"))
            .bind(id)
            .bind(tenant)
            .bind(consumer.0)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction.rollback().await;
        row.map(|row| started(&row).map_err(StoreError::rolled_back))
            .transpose()
    }

    pub(crate) async fn write_started(
        &self,
        consumer: ConsumerId,
        key: &EventKey,
        started: Started,
    ) -> Result<(), StoreError> {
        let (id, tenant) = columns(key);
        let mut transaction = self.begin_plain().await?;
        sqlx::query(include_str!("queries/put_started.sql"))
            .bind(id)
            .bind(tenant)
            .bind(consumer.0)
            .bind(bytes(started.process))
            .bind(started.alone)
            .bind(started.crashes)
            .execute(&mut *transaction)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)
    }

    pub(crate) async fn delete_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin_plain().await?;
        delete(&mut transaction, consumer, process, keys)
            .await
            .map_err(misplaced)?;
        transaction
            .commit()
            .await
            .map_err(StoreError::indeterminate)
    }
}

impl SqliteUnit {
    pub(crate) async fn delete_started(
        &mut self,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        delete(&mut self.transaction, self.consumer, process, keys)
            .await
            .map_err(|error| StoreError::rolled_back(self.failed(error)))
    }
}

async fn delete(
    transaction: &mut Transaction,
    consumer: ConsumerId,
    process: ProcessId,
    keys: &[EventKey],
) -> sqlx::Result<()> {
    sqlx::query(include_str!("queries/forget_started.sql"))
        .bind(Keys::of(keys).to_json())
        .bind(consumer.0)
        .bind(bytes(process))
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

fn bytes(process: ProcessId) -> Vec<u8> {
    process.to_bytes().to_vec()
}

fn started(row: &SqliteRow) -> sqlx::Result<Started> {
    let process: &[u8] = row.try_get("process")?;
    let process = process
        .try_into()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Started {
        process: ProcessId::from_bytes(process),
        alone: row.try_get("alone")?,
        crashes: row.try_get("crashes")?,
    })
}
