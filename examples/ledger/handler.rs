//! The handler: what a user of oneffect writes.

use std::time::Duration;

use oneffect::{Context, Failure, Handler, HandlerResult, Postgres, Sqlite, Store, done, reject};
use sqlx::{PgConnection, SqliteConnection};

use crate::transfer::Transfer;

/// Enters transfers into the books. The two fields beside it are for tests of oneffect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// How long it dawdles while its transaction is open.
    pub(crate) delay: Duration,
    /// What share of the events, from 0 to 1, fails at its first attempt.
    pub(crate) fail_rate: f64,
}

impl<S: Entries> Handler<S> for Ledger {
    type Event = Transfer;

    async fn handle(&self, cx: &mut Context<'_, S>, transfer: Transfer) -> HandlerResult {
        if let Some(reason) = transfer.refusal() {
            return reject(reason);
        }
        S::enter(cx.db().await?, &transfer).await?;
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if cx.attempt() == 1 && self.fails(&transfer) {
            return Err(Failure::new("a failure that was asked for (--fail-rate)"));
        }
        done()
    }
}

impl Ledger {
    /// The same for each delivery of an event: the end of its id is as good as random.
    #[allow(clippy::cast_precision_loss, reason = "a share need not be exact")]
    fn fails(&self, transfer: &Transfer) -> bool {
        let (_, random) = transfer.event_id.as_u64_pair();
        let share = (random << 2) as f64 / u64::MAX as f64; // the first two bits are fixed
        share < self.fail_rate
    }
}

/// A store that the books can be kept in. Only a program that supports several needs this: others
/// write their SQL into the handler.
pub(crate) trait Entries: Store {
    /// Writes the two entries of a transfer, in one statement.
    fn enter(
        connection: &mut Self::Connection,
        transfer: &Transfer,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;
}

impl Entries for Postgres {
    async fn enter(connection: &mut PgConnection, transfer: &Transfer) -> sqlx::Result<()> {
        sqlx::query(include_str!("sql/postgres/enter.sql"))
            .bind(transfer.event_id.to_string())
            .bind(&transfer.from_account)
            .bind(&transfer.to_account)
            .bind(transfer.amount_minor)
            .bind(&transfer.currency)
            .bind(&transfer.occurred_at)
            .bind(&transfer.memo)
            .execute(connection)
            .await?;
        Ok(())
    }
}

impl Entries for Sqlite {
    async fn enter(connection: &mut SqliteConnection, transfer: &Transfer) -> sqlx::Result<()> {
        sqlx::query(include_str!("sql/sqlite/enter.sql"))
            .bind(transfer.event_id.to_string())
            .bind(&transfer.from_account)
            .bind(&transfer.to_account)
            .bind(transfer.amount_minor)
            .bind(&transfer.currency)
            .bind(&transfer.occurred_at)
            .bind(&transfer.memo)
            .execute(connection)
            .await?;
        Ok(())
    }
}
