//! What the crash guard writes down before handlers begin.

use oneffect_core::{ConsumerId, EventKey, ProcessId, Started, StoreError};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::blame::misplaced;
use crate::keys::{Keys, columns};
use crate::store::Postgres;
use crate::transaction::{Transaction, heard};
use crate::unit::PostgresUnit;

impl Postgres {
    pub(crate) async fn insert_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<Vec<bool>, StoreError> {
        let sorted = Keys::of(keys);
        let mut transaction = self.begin_plain().await?;
        let rows = heard!(
            transaction,
            "started events",
            sqlx::query(include_str!("queries/note_started.sql"))
                .bind(sorted.all().ids())
                .bind(sorted.all().tenants())
                .bind(consumer.0)
                .bind(process.to_bytes())
                .persistent(self.named())
                .fetch_all(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.commit().await?;
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
        let row = heard!(
            transaction,
            "a started event",
            sqlx::query(include_str!("queries/find_started.sql"))
                .bind(id)
                .bind(tenant)
                .bind(consumer.0)
                .persistent(self.named())
                .fetch_optional(&mut *transaction)
        )
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
        heard!(
            transaction,
            "a started event",
            sqlx::query(include_str!("queries/put_started.sql"))
                .bind(id)
                .bind(tenant)
                .bind(consumer.0)
                .bind(started.process.to_bytes())
                .bind(started.alone)
                .bind(i32::try_from(started.crashes).unwrap_or(i32::MAX))
                .persistent(self.named())
                .execute(&mut *transaction)
        )
        .map_err(misplaced)?;
        transaction.commit().await
    }

    pub(crate) async fn delete_started(
        &self,
        consumer: ConsumerId,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        let mut transaction = self.begin_plain().await?;
        let named = self.named();
        heard!(
            transaction,
            "ended events",
            delete(&mut transaction, consumer, process, keys, named)
        )
        .map_err(misplaced)?;
        transaction.commit().await
    }
}

impl PostgresUnit {
    pub(crate) async fn delete_started(
        &mut self,
        process: ProcessId,
        keys: &[EventKey],
    ) -> Result<(), StoreError> {
        delete(
            &mut self.transaction,
            self.consumer,
            process,
            keys,
            self.named,
        )
        .await
        .map_err(|error| StoreError::rolled_back(self.failed(error)))
    }
}

async fn delete(
    transaction: &mut Transaction,
    consumer: ConsumerId,
    process: ProcessId,
    keys: &[EventKey],
    named: bool,
) -> sqlx::Result<()> {
    let keys = Keys::of(keys);
    sqlx::query(include_str!("queries/forget_started.sql"))
        .bind(keys.all().ids())
        .bind(keys.all().pairs())
        .bind(consumer.0)
        .bind(process.to_bytes())
        .persistent(named)
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

fn started(row: &PgRow) -> sqlx::Result<Started> {
    let process: [u8; 16] = row.try_get("process")?;
    let crashes: i32 = row.try_get("crashes")?;
    Ok(Started {
        process: ProcessId::from_bytes(process),
        alone: row.try_get("alone")?,
        crashes: crashes.try_into().unwrap_or_default(),
    })
}
