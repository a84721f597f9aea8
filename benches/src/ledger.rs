//! The effect: two rows for every transfer, in a table without a key that could save a contender
//! from its own mistakes.

use sqlx::postgres::PgPool;

/// The table.
///
/// It has no key and no index: only the contender's inbox keeps a transfer from being entered
/// twice.
pub const CREATE: &str = "
CREATE TABLE IF NOT EXISTS entry (
    event_id     uuid   NOT NULL,
    account      text   NOT NULL,
    amount_minor bigint NOT NULL,
    currency     text   NOT NULL
)";

/// Enters one transfer: its id, the account that pays, the one that is paid, the amount and the
/// currency.
pub const ENTER: &str = "
INSERT INTO entry (event_id, account, amount_minor, currency)
VALUES ($1, $2, -$4, $5), ($1, $3, $4, $5)";

/// What the ledger must hold in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Distinct events.
    pub events: i64,
    /// The sum of their amounts.
    pub volume: i64,
}

/// Compares the ledger with what it must hold.
///
/// # Errors
/// The difference, in words.
pub async fn check(pool: &PgPool, expected: Expected) -> Result<(), String> {
    let (events, not_two, not_zero, volume): (i64, i64, i64, i64) = sqlx::query_as(
        "WITH event AS (
             SELECT count(*) AS n, sum(amount_minor) AS balance, max(amount_minor) AS amount
             FROM entry GROUP BY event_id
         )
         SELECT count(*), count(*) FILTER (WHERE n <> 2), count(*) FILTER (WHERE balance <> 0),
                coalesce(sum(amount), 0)::bigint
         FROM event",
    )
    .fetch_one(pool)
    .await
    .map_err(|error| error.to_string())?;
    let found = Expected { events, volume };
    if found == expected && not_two == 0 && not_zero == 0 {
        return Ok(());
    }
    Err(format!(
        "the ledger has {} events and a volume of {}, and must have {} and {}; of {not_two} events \
         there are not two rows, of {not_zero} they do not add up to zero",
        found.events, found.volume, expected.events, expected.volume
    ))
}
