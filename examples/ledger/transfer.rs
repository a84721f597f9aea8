//! The event: money moves from one account to another.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

/// As it travels, in JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Transfer {
    /// Chosen by the producer, once, and repeated with every sending.
    pub(crate) event_id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) occurred_at: OffsetDateTime,
    pub(crate) from_account: String,
    pub(crate) to_account: String,
    /// In the currency's smallest unit: cents.
    pub(crate) amount_minor: i64,
    pub(crate) currency: String,
    pub(crate) memo: String,
}

impl Transfer {
    /// Why it can never be entered, whenever it is tried.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        if self.amount_minor <= 0 {
            return Some("amount must be positive");
        }
        if self.from_account == self.to_account {
            return Some("an account cannot pay itself");
        }
        None
    }
}
