//! The handler: what a user of oneffect writes.

use std::time::Duration;

use oneffect::{Context, Failure, Handler, HandlerResult, done, reject};

use crate::entry::{Entries, Entry};
use crate::transfer::Transfer;

/// Enters transfers into the books. Its fields are for tests of oneffect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// It writes each transfer itself, instead of leaving its rows to the unit of work.
    pub(crate) direct: bool,
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
        if self.direct {
            S::enter(cx.db().await?, &transfer).await?;
        } else {
            // Written with those of all other transfers of the batch, by one statement.
            cx.stage(Entry::debit(&transfer));
            cx.stage(Entry::credit(&transfer));
        }
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
