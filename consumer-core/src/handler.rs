//! What users write.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::context::Context;
use crate::dead_letter::storable;
use crate::decode::Decode;
use crate::duplicate::Duplicate;
use crate::reply::{IntoReply, Reply};
use crate::store::{Settled, Store};

/// Turns an event into its effect, inside the unit of work that holds the event's inbox row.
///
/// Write a plain `async fn`:
///
/// ```
/// # use oneffect_core::{Context, Handler, HandlerResult, Store, done, reject};
/// #[derive(serde::Deserialize)]
/// struct Transfer { amount_minor: i64 }
///
/// struct Ledger;
///
/// impl<S: Store> Handler<S> for Ledger {
///     type Event = Transfer;
///
///     async fn handle(&self, cx: &mut Context<'_, S>, transfer: Transfer) -> HandlerResult {
///         if transfer.amount_minor <= 0 {
///             return reject("amount must be positive");
///         }
///         let _connection = cx.db().await?;
///         done()
///     }
/// }
/// ```
///
/// # Contract
/// 1. What the handler writes through [`Context::db`] commits together with the event's inbox row,
///    or is undone with it.
/// 2. A handler may run several times for one event (after a failure, a crash, a rollback); its
///    effect in the database happens once. What it does *outside* the database happens each time.
/// 3. `Ok(done())` keeps the effect; `reject(..)` undoes it and stores the reason; an error undoes
///    it and runs the event again later; a panic is an error.
/// 4. The handler does not end the transaction. Nested ones (savepoints) are its own business.
/// 5. Handlers of one lane run one after the other, in order.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle events inside a unit of work of `{S}`",
    label = "not a handler for this store",
    note = "implement `Handler<{S}>` for it, or give the consumer the store that it was written for; a `BatchHandler<{S}>` goes to `Consumer::batches`"
)]
pub trait Handler<S: Store>: Send + Sync + 'static {
    /// What the handler is given; see [`Decode`].
    type Event: Decode;

    /// Handles one event. The future may be dropped at any await point (a stop that runs out of
    /// time, a timeout): everything it wrote through [`Context::db`] is undone then.
    fn handle(
        &self,
        cx: &mut Context<'_, S>,
        event: Self::Event,
    ) -> impl Future<Output = HandlerResult> + Send;

    /// Told of every delivery whose event was settled before, with what became of it: the stored
    /// reply, the reason of a rejection. For those who answer each delivery, and would otherwise
    /// leave the one who asks again without an answer. Does nothing by default.
    ///
    /// It is called outside any transaction, before the duplicate is acknowledged: after a crash in
    /// between it is called again. It is also called for an event of this process's own, when the
    /// answer to its commit was lost and claiming it again showed that it had happened. Deliveries
    /// of *other* content under the same key ([`Fingerprint`](crate::Fingerprint)) are no
    /// duplicates.
    ///
    /// It runs on the task that drives the consumer, which waits for it: do not block, and hand over
    /// what takes time through a channel. A panic is logged, and changes nothing.
    fn on_duplicate(&self, duplicate: &Duplicate<'_>, settled: &Settled) {
        let _ = (duplicate, settled);
    }
}

/// What a handler answers.
pub type HandlerResult = Result<Outcome, Failure>;

/// What became of an event whose handling ended in good order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The effect is there.
    Done {
        /// What repeats of the event are answered.
        reply: Option<Reply>,
    },
    /// The event is refused, for good: the reason is stored, the handler's writes are undone.
    Rejected {
        /// Why; cut to 1 KiB.
        reason: Box<str>,
    },
}

/// The event is handled.
///
/// # Errors
/// Never; it is a `Result` so that a handler can end with it.
#[allow(clippy::unnecessary_wraps)]
pub fn done() -> HandlerResult {
    Ok(Outcome::Done { reply: None })
}

/// The event is handled, and this is the answer: it is stored with the event's outcome, in the same
/// transaction, and every repeat of the event gets it; see [`Handler::on_duplicate`].
///
/// Takes anything that serde can serialise, as JSON, or a [`Reply`] of bytes. A reply that is larger
/// than [`ConsumerConfig::reply_limit`](crate::ConsumerConfig::reply_limit), or cannot be
/// serialised, is a mistake that no retry mends: the handler's writes are undone, and the event is
/// set aside at once.
///
/// ```
/// # use oneffect_core::{HandlerResult, Reply, done_with};
/// #[derive(serde::Serialize)]
/// struct Receipt { entry: u64 }
///
/// fn json() -> HandlerResult {
///     done_with(Receipt { entry: 7 })
/// }
///
/// fn bytes() -> HandlerResult {
///     done_with(Reply::bytes("7"))
/// }
/// ```
///
/// # Errors
/// Never; it is a `Result` so that a handler can end with it.
#[allow(clippy::unnecessary_wraps)]
pub fn done_with(reply: impl IntoReply) -> HandlerResult {
    let reply = Some(reply.into_reply());
    Ok(Outcome::Done { reply })
}

/// The event can never be handled: validation failed, funds are insufficient. The reason is stored
/// and answered to every repeat. For what may work later, return an error instead.
///
/// # Errors
/// Never: a rejection is an outcome. It is a `Result` so that a handler can return it.
#[allow(clippy::unnecessary_wraps)]
pub fn reject(reason: impl fmt::Display) -> HandlerResult {
    let reason = storable(&reason.to_string(), MAX_REASON_LEN).into();
    Ok(Outcome::Rejected { reason })
}

/// Reasons are cut to this many bytes.
const MAX_REASON_LEN: usize = 1024;

/// A transient failure: the event is undone and runs again.
///
/// Made from any error by `?`, since an error that nobody has thought about may well go away;
/// therefore it is no `std::error::Error` itself. [`Failure::new`] makes one from text.
pub struct Failure(Box<dyn Error + Send + Sync>);

impl Failure {
    /// A failure that only has words.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into().into())
    }

    /// The error.
    pub fn error(&self) -> &(dyn Error + 'static) {
        &*self.0
    }

    /// The error and its causes, outermost first, a line each.
    pub(crate) fn chain(&self) -> String {
        error_chain(&*self.0)
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An error and its causes, outermost first, a line each.
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push('\n');
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What a panic said, if it was text.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    (panic.downcast_ref::<&str>().copied())
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

/// An error and its causes in one line: how the errors of this crate print as `{:?}`, since that is
/// what a `main` that returns one shows.
pub(crate) fn one_line(error: &(dyn Error + 'static)) -> String {
    error_chain(error).replace('\n', ": ")
}

/// The future that a closure given to [`handler_fn`] returns.
pub type HandlerFuture<'f> = Pin<Box<dyn Future<Output = HandlerResult> + Send + 'f>>;

/// A handler from a closure.
///
/// The future is boxed, since a `Send` bound on what an async closure returns cannot be written yet:
///
/// ```
/// # use oneffect_core::{Store, done, handler_fn, Handler};
/// # fn consumer<S: Store>(_: impl Handler<S>) {}
/// # fn example<S: Store>() {
/// consumer::<S>(handler_fn(|cx, amount: i64| Box::pin(async move {
///     let _connection = cx.db().await?;
///     println!("{amount}");
///     done()
/// })));
/// # }
/// ```
pub fn handler_fn<S, T, F>(handle: F) -> HandlerFn<F, T>
where
    S: Store,
    T: Decode,
    F: for<'f, 'u> Fn(&'f mut Context<'u, S>, T) -> HandlerFuture<'f> + Send + Sync + 'static,
{
    HandlerFn {
        handle,
        event: std::marker::PhantomData,
    }
}

/// See [`handler_fn`].
pub struct HandlerFn<F, T> {
    handle: F,
    event: std::marker::PhantomData<fn(T)>,
}

impl<F, T> fmt::Debug for HandlerFn<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerFn").finish_non_exhaustive()
    }
}

impl<S, T, F> Handler<S> for HandlerFn<F, T>
where
    S: Store,
    T: Decode + 'static,
    F: for<'f, 'u> Fn(&'f mut Context<'u, S>, T) -> HandlerFuture<'f> + Send + Sync + 'static,
{
    type Event = T;

    fn handle(
        &self,
        cx: &mut Context<'_, S>,
        event: T,
    ) -> impl Future<Output = HandlerResult> + Send {
        (self.handle)(cx, event)
    }
}
