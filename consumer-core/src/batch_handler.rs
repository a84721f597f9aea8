//! What users write who handle a whole batch at once.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use tokio_util::sync::CancellationToken;

use crate::context::{About, Lent};
use crate::decode::Decode;
use crate::delivery::{Headers, Position};
use crate::duplicate::Duplicate;
use crate::event_key::EventKey;
use crate::handler::{Failure, HandlerResult};
use crate::store::{Settled, Store, StoreError};

/// Turns all fresh events of a batch into their effects at once, inside the unit of work that holds
/// their inbox rows: for those who write SQL that does many events' work in one statement. Whoever
/// only adds rows to tables has the same speed with less from a [`Handler`](crate::Handler) that
/// [stages](crate::Context::stage) them.
///
/// Write a plain `async fn`, and give it to [`Consumer::batches`](crate::Consumer::batches):
///
/// ```
/// # use oneffect_core::{BatchContext, BatchHandler, BatchResult, Fresh, Store, done, each, reject};
/// #[derive(serde::Deserialize)]
/// struct Transfer { amount_minor: i64 }
///
/// struct Ledger;
///
/// impl<S: Store> BatchHandler<S> for Ledger {
///     type Event = Transfer;
///
///     async fn handle(
///         &self,
///         cx: &mut BatchContext<'_, S>,
///         transfers: Vec<Fresh<'_, Transfer>>,
///     ) -> BatchResult {
///         let (good, _bad): (Vec<_>, Vec<_>) =
///             transfers.iter().partition(|transfer| transfer.amount_minor > 0);
///         let _connection = cx.db().await?; // one statement for all that are good
///         each(transfers.iter().map(|transfer| match transfer.amount_minor {
///             1.. => done(),
///             _ => reject("amount must be positive"),
///         }))
///     }
/// }
/// ```
///
/// # Contract
/// 1. What the handler writes commits together with the inbox rows of all events that it was given,
///    or is undone with them.
/// 2. The events are distinct, and those of one lane are in order. How many there are follows the
///    load; one alone is usual when there is little.
/// 3. It answers [`all_done`], or [`each`] with one outcome for each event, in their order: done,
///    done with a reply, rejected, or an error, which is that event's transient failure.
/// 4. **An event that it rejects it has written nothing for.** Nothing could undo it: the
///    transaction is the whole batch's. Builds with debug assertions check it: they call the
///    handler once more with that event alone, and undo that; an event that it had written for is
///    set aside in the end, with a message that says so. (An event that stands alone is undone by
///    the database, whatever it wrote.)
/// 5. When some events fail, all is undone, and the handler is called again without them and without
///    the later ones of their lanes; they run alone. When it answers with an error for all, panics,
///    or overruns [`ConsumerConfig::handler_timeout`](crate::ConsumerConfig::handler_timeout), it is
///    called with halves of the batch, until the culprit stands alone. Only a failure alone is
///    charged as an attempt.
/// 6. As with [`Handler`](crate::Handler): it may be called several times for one event, what it
///    does outside the database happens each time, and it does not end the transaction.
///
/// A handler of the other kind is a compile error that says what to call instead:
///
/// ```compile_fail
/// # use oneffect_core::{Consumer, Context, Handler, HandlerResult, Source, Store, done};
/// struct OneByOne;
/// impl<S: Store> Handler<S> for OneByOne {
///     type Event = u32;
///     async fn handle(&self, _: &mut Context<'_, S>, _: u32) -> HandlerResult { done() }
/// }
/// # fn run(source: impl Source, store: impl Store) {
/// Consumer::batches("ledger", source, store, OneByOne);
/// # }
/// ```
///
/// ```compile_fail
/// # use oneffect_core::{BatchContext, BatchHandler, BatchResult, Consumer, Fresh, Source, Store, all_done};
/// struct AllAtOnce;
/// impl<S: Store> BatchHandler<S> for AllAtOnce {
///     type Event = u32;
///     async fn handle(&self, _: &mut BatchContext<'_, S>, _: Vec<Fresh<'_, u32>>) -> BatchResult { all_done() }
/// }
/// # fn run(source: impl Source, store: impl Store) {
/// Consumer::new("ledger", source, store, AllAtOnce);
/// # }
/// ```
///
/// One outcome for several events is no answer:
///
/// ```compile_fail
/// # use oneffect_core::{BatchContext, BatchHandler, BatchResult, Fresh, Store, done};
/// struct AllAtOnce;
/// impl<S: Store> BatchHandler<S> for AllAtOnce {
///     type Event = u32;
///     async fn handle(&self, _: &mut BatchContext<'_, S>, _: Vec<Fresh<'_, u32>>) -> BatchResult { done() }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle batches of events inside a unit of work of `{S}`",
    label = "not a batch handler for this store",
    note = "implement `BatchHandler<{S}>` for it; a `Handler<{S}>` goes to `Consumer::new`"
)]
pub trait BatchHandler<S: Store>: Send + Sync + 'static {
    /// What the handler is given; see [`Decode`].
    type Event: Decode;

    /// Handles all fresh events of a batch. The future may be dropped at any await point (a stop
    /// that runs out of time, a timeout): everything it wrote through [`BatchContext::db`] is undone
    /// then.
    fn handle(
        &self,
        cx: &mut BatchContext<'_, S>,
        events: Vec<Fresh<'_, Self::Event>>,
    ) -> impl Future<Output = BatchResult> + Send;

    /// As [`Handler::on_duplicate`](crate::Handler::on_duplicate).
    fn on_duplicate(&self, duplicate: &Duplicate<'_>, settled: &Settled) {
        let _ = (duplicate, settled);
    }
}

/// What a batch handler answers.
pub type BatchResult = Result<Outcomes, Failure>;

/// What became of the events of a batch; see [`all_done`] and [`each`].
#[derive(Debug)]
pub struct Outcomes(pub(crate) Kind);

#[derive(Debug)]
pub(crate) enum Kind {
    AllDone,
    Each(Vec<HandlerResult>),
}

/// All events of the batch are handled.
///
/// # Errors
/// Never; it is a `Result` so that a handler can end with it.
#[allow(clippy::unnecessary_wraps)]
pub fn all_done() -> BatchResult {
    Ok(Outcomes(Kind::AllDone))
}

/// What became of each event, in the order in which they were given: what [`done`](crate::done),
/// [`done_with`](crate::done_with) and [`reject`](crate::reject) say, or an error for one that
/// failed and is to run again. There must be as many outcomes as there are events.
///
/// # Errors
/// Never; it is a `Result` so that a handler can end with it.
#[allow(clippy::unnecessary_wraps)]
pub fn each(outcomes: impl IntoIterator<Item = HandlerResult>) -> BatchResult {
    Ok(Outcomes(Kind::Each(outcomes.into_iter().collect())))
}

/// The unit of work as a batch handler sees it.
#[derive(Debug)]
pub struct BatchContext<'u, S: Store> {
    pub(crate) lent: Lent<'u, S>,
    pub(crate) cancelled: &'u CancellationToken,
}

impl<S: Store> BatchContext<'_, S> {
    /// Lends the transaction's connection; as [`Context::db`](crate::Context::db).
    ///
    /// # Errors
    /// When a staged row cannot be written; pass it on with `?`.
    ///
    /// # Cancel safety
    /// Not cancel-safe: dropping the future spoils the unit, which is rolled back.
    pub async fn db(&mut self) -> Result<&mut S::Connection, StoreError> {
        self.lent.db().await
    }

    /// Hands an event's row to the unit of work; as [`Context::stage`](crate::Context::stage). Rows
    /// are written in the order of their events. When the database does not take one, its event has
    /// failed; when the event is rejected, the row is dropped.
    pub fn stage<E>(&mut self, event: &Fresh<'_, E>, row: impl Into<S::Row>) {
        self.lent.staged.push(event.at, row.into());
    }

    /// Cancelled when the consumer stops, or the partition of the first event is taken away; as
    /// [`Context::cancelled`](crate::Context::cancelled).
    pub fn cancelled(&self) -> &CancellationToken {
        self.cancelled
    }
}

/// A fresh event of a batch, and what is known of it. Dereferences to the event.
pub struct Fresh<'b, E> {
    event: E,
    about: About<'b>,
    /// Its place in the unit's batch, duplicates included.
    pub(crate) at: usize,
}

impl<'b, E> Fresh<'b, E> {
    pub(crate) fn new(event: E, about: About<'b>, at: usize) -> Self {
        Self { event, about, at }
    }

    /// The event itself.
    pub fn into_event(self) -> E {
        self.event
    }

    /// The event key: the tenant, and the id that the producer chose.
    pub fn event_key(&self) -> &'b EventKey {
        self.about.event_key
    }

    /// Which attempt this is, from 1; as [`Context::attempt`](crate::Context::attempt).
    pub fn attempt(&self) -> u32 {
        self.about.attempt
    }

    /// Where this delivery sits: informative, never an identity.
    pub fn position(&self) -> &'b Position {
        &self.about.delivery.position
    }

    /// The headers or attributes it came with.
    pub fn headers(&self) -> &'b Headers {
        &self.about.delivery.headers
    }

    /// The record key, where the broker has one.
    pub fn key(&self) -> Option<&'b [u8]> {
        self.about.delivery.key.as_deref()
    }

    /// The producer's W3C trace context, as the `traceparent` header carries it.
    pub fn trace_parent(&self) -> Option<&'b str> {
        self.about.trace_parent()
    }
}

impl<E> Deref for Fresh<'_, E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.event
    }
}

impl<E: fmt::Debug> fmt::Debug for Fresh<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fresh")
            .field("event_key", self.about.event_key)
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}
