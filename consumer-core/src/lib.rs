//! The runtime of oneffect: at-least-once delivery, exactly-once effect.
//!
//! This crate holds the words, the traits and the consumer; it names no broker and no database.
//! Use the facade crate `oneffect`, which adds those.

mod batch_size;
mod caution;
mod claim;
mod consumer;
mod context;
mod crash_guard;
mod day;
mod dead_letter;
mod decode;
mod delivery;
pub mod doctor;
mod duplicate;
mod duplicate_ages;
mod event_key;
mod finding;
mod fingerprint;
mod flow;
mod handler;
mod headers_json;
mod health;
mod identify;
mod json_pointer;
mod keys_in_flight;
mod lanes;
mod letters;
mod pace;
mod reply;
mod retry;
mod shutdown;
mod source;
mod span;
mod stats;
mod store;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod watermark;
mod window;

pub use claim::Claim;
pub use consumer::{Consumer, ConsumerConfig, Redrive, RedriveReport, RunError};
pub use context::Context;
pub use crash_guard::{ProcessId, Started};
pub use day::{Day, DaysFrom};
pub use dead_letter::{Cut, DeadLetter, DeadLetterBounds, DeadLetterKind};
pub use decode::{Decode, DecodeError, Raw};
pub use delivery::{AssignmentId, Delivery, Headers, Order, Position};
pub use duplicate::Duplicate;
pub use duplicate_ages::{AgeBucket, DuplicateAges};
pub use event_key::{EventId, EventKey, InvalidEventKey, Tenant};
pub use finding::{Finding, Level};
pub use fingerprint::{Fingerprint, Fingerprint16};
pub use flow::Limit;
pub use handler::{
    Failure, Handler, HandlerFn, HandlerFuture, HandlerResult, Outcome, done, done_with,
    error_chain, handler_fn, reject,
};
pub use health::{Cause, Health, HealthHandle, NotReady};
pub use identify::{IdFrom, TenantFrom};
pub use lanes::Lanes;
pub use letters::{
    DeadLetters, Letter, LetterFilter, LetterId, LetterRow, LetterSummary, RedriveAs,
    RedriveRequest, Refusal, Requested, RequestedRedrive, micros,
};
pub use reply::{IntoReply, Reply};
pub use retry::RetrySchedule;
pub use shutdown::shutdown_signal;
pub use source::{Assignment, Revocation, Settle, Settlement, Source, SourceError, SourceEvent};
pub use span::Span;
pub use stats::{Stats, StatsHandle};
pub use store::{
    Begin, Blame, ConsumerId, Late, Maintained, Prior, Reopen, Settled, Store, StoreError, Unit,
    Verdict,
};
pub use watermark::Watermark;
pub use window::{
    IdShape, InboxLoad, InboxSize, Longest, Reach, ReplayHorizon, RowSize, Window, WindowCheck,
};
