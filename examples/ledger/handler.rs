//! The handler: what a user of oneffect writes.

use std::time::Duration;

use oneffect::{
    BatchContext, BatchHandler, BatchResult, Context, Failure, Fresh, Handler, HandlerResult, done,
    each, reject,
};

use crate::entry::{Entries, Entry};
use crate::transfer::Transfer;

/// How it writes: each has the same effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Style {
    /// Each transfer by a statement of its own
    Plain,
    /// Rows are left to the unit of work, which writes all of a batch by one statement
    #[default]
    Staged,
    /// A handler that is given whole batches, and writes each by a statement of its own
    Batch,
}

/// Enters transfers into the books. Its fields are for tests of oneffect.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) style: Style,
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
        if self.style == Style::Plain {
            S::enter(cx.db().await?, &transfer).await?;
        } else {
            // Written with those of all other transfers of the batch, by one statement.
            cx.stage(Entry::debit(&transfer));
            cx.stage(Entry::credit(&transfer));
        }
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        self.fail(cx.attempt(), &transfer)?;
        done()
    }
}

impl<S: Entries> BatchHandler<S> for Ledger {
    type Event = Transfer;

    async fn handle(
        &self,
        cx: &mut BatchContext<'_, S>,
        transfers: Vec<Fresh<'_, Transfer>>,
    ) -> BatchResult {
        // Nothing is written for what is refused: in a batch nothing could undo it.
        let good: Vec<&Transfer> = (transfers.iter())
            .map(|transfer| &**transfer)
            .filter(|transfer| transfer.refusal().is_none())
            .collect();
        S::enter_all(cx.db().await?, &good).await?;
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        each(transfers.iter().map(|transfer| {
            if let Some(reason) = transfer.refusal() {
                return reject(reason);
            }
            self.fail(transfer.attempt(), transfer)?;
            done()
        }))
    }
}

impl Ledger {
    fn fail(&self, attempt: u32, transfer: &Transfer) -> Result<(), Failure> {
        if attempt == 1 && self.fails(transfer) {
            return Err(Failure::new("a failure that was asked for (--fail-rate)"));
        }
        Ok(())
    }

    /// The same for each delivery of an event: the end of its id is as good as random.
    #[allow(clippy::cast_precision_loss, reason = "a share need not be exact")]
    fn fails(&self, transfer: &Transfer) -> bool {
        let (_, random) = transfer.event_id.as_u64_pair();
        let share = (random << 2) as f64 / u64::MAX as f64; // the first two bits are fixed
        share < self.fail_rate
    }
}
