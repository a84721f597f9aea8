//! What a transfer becomes: two rows of the books, in one table.

use oneffect::{Postgres, Sqlite, Store};
use sqlx::{PgConnection, SqliteConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::transfer::Transfer;

/// One of the two.
#[derive(Debug)]
pub(crate) struct Entry {
    event_id: Uuid,
    leg: &'static str,
    account: String,
    amount_minor: i64,
    currency: String,
    occurred_at: OffsetDateTime,
    memo: String,
}

// A program needs the one for its database.
oneffect::postgres_row!(Entry in "ledger_entry" { event_id, leg, account, amount_minor, currency, occurred_at, memo });
oneffect::sqlite_row!(Entry in "ledger_entry" { event_id, leg, account, amount_minor, currency, occurred_at, memo });

impl Entry {
    pub(crate) fn debit(transfer: &Transfer) -> Self {
        Self::new(
            transfer,
            "debit",
            &transfer.from_account,
            -transfer.amount_minor,
        )
    }

    pub(crate) fn credit(transfer: &Transfer) -> Self {
        Self::new(
            transfer,
            "credit",
            &transfer.to_account,
            transfer.amount_minor,
        )
    }

    fn new(transfer: &Transfer, leg: &'static str, account: &str, amount_minor: i64) -> Self {
        Self {
            event_id: transfer.event_id,
            leg,
            account: account.to_owned(),
            amount_minor,
            currency: transfer.currency.clone(),
            occurred_at: transfer.occurred_at,
            memo: transfer.memo.clone(),
        }
    }
}

/// A store that the books can be kept in. Only a program that supports several needs such a trait:
/// others write their SQL into the handler.
pub(crate) trait Entries: Store<Row: From<Entry>> {
    /// Writes both entries now, in one statement.
    fn enter(
        connection: &mut Self::Connection,
        transfer: &Transfer,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Writes the entries of many transfers now.
    fn enter_all(
        connection: &mut Self::Connection,
        transfers: &[&Transfer],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;
}

impl Entries for Postgres {
    async fn enter(connection: &mut PgConnection, transfer: &Transfer) -> sqlx::Result<()> {
        sqlx::query(include_str!("sql/postgres/enter.sql"))
            .bind(transfer.event_id)
            .bind(&transfer.from_account)
            .bind(&transfer.to_account)
            .bind(transfer.amount_minor)
            .bind(&transfer.currency)
            .bind(transfer.occurred_at)
            .bind(&transfer.memo)
            .execute(connection)
            .await?;
        Ok(())
    }

    async fn enter_all(connection: &mut PgConnection, transfers: &[&Transfer]) -> sqlx::Result<()> {
        macro_rules! column {
            ($field:ident) => {
                transfers.iter().map(|t| &t.$field).collect::<Vec<_>>()
            };
        }
        sqlx::query(include_str!("sql/postgres/enter_all.sql"))
            .bind(column!(event_id))
            .bind(column!(from_account))
            .bind(column!(to_account))
            .bind(column!(amount_minor))
            .bind(column!(currency))
            .bind(column!(occurred_at))
            .bind(column!(memo))
            .execute(connection)
            .await?;
        Ok(())
    }
}

impl Entries for Sqlite {
    async fn enter(connection: &mut SqliteConnection, transfer: &Transfer) -> sqlx::Result<()> {
        sqlx::query(include_str!("sql/sqlite/enter.sql"))
            .bind(transfer.event_id)
            .bind(&transfer.from_account)
            .bind(&transfer.to_account)
            .bind(transfer.amount_minor)
            .bind(&transfer.currency)
            .bind(transfer.occurred_at)
            .bind(&transfer.memo)
            .execute(connection)
            .await?;
        Ok(())
    }

    /// There is no round trip to save.
    async fn enter_all(
        connection: &mut SqliteConnection,
        transfers: &[&Transfer],
    ) -> sqlx::Result<()> {
        for transfer in transfers {
            Self::enter(connection, transfer).await?;
        }
        Ok(())
    }
}
