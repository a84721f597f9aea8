//! The runtime of oneffect: at-least-once delivery, exactly-once effect.
//!
//! This crate holds the words, the traits and the consumer; it names no broker and no database.
//! Use the facade crate `oneffect`, which adds those.

mod batch_handler;
mod batch_size;
mod caution;
mod claim;
mod clock;
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
mod event_record;
mod finding;
mod fingerprint;
mod flow;
mod handler;
mod headers_json;
mod health;
mod identify;
mod inbox_report;
mod json_pointer;
mod keys_in_flight;
mod lanes;
mod late_policy;
mod letters;
mod migrations;
mod pace;
mod reply;
mod retry;
mod shutdown;
mod source;
mod span;
mod staged;
mod stats;
mod store;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod watermark;
mod window;

pub use batch_handler::{BatchContext, BatchHandler, BatchResult, Fresh, Outcomes, all_done, each};
pub use claim::Claim;
pub use consumer::{
    AllAtOnce, Consumer, ConsumerConfig, OneByOne, Redrive, RedriveReport, RunError,
};
pub use context::Context;
pub use crash_guard::{ProcessId, Started};
pub use day::{Day, DaysFrom};
pub use dead_letter::{Cut, DeadLetter, DeadLetterBounds, DeadLetterKind};
pub use decode::{Decode, DecodeError, Raw};
pub use delivery::{AssignmentId, Delivery, Headers, Order, Position};
pub use duplicate::Duplicate;
pub use duplicate_ages::{AgeBucket, DuplicateAges};
pub use event_key::{EventId, EventKey, InvalidEventKey, Tenant};
pub use event_record::{EventRecord, FailedRecord, Filed, SettledRecord};
pub use finding::{Finding, Level};
pub use fingerprint::{Fingerprint, Fingerprint16};
pub use flow::Limit;
pub use handler::{
    Failure, Handler, HandlerFn, HandlerFuture, HandlerResult, Outcome, done, done_with,
    error_chain, handler_fn, reject,
};
pub use health::{Cause, Health, HealthHandle, NotReady};
pub use identify::{IdFrom, TenantFrom, TimeFrom};
pub use inbox_report::{ConsumerReport, InboxPart, InboxPartKind, InboxReport};
pub use lanes::Lanes;
pub use late_policy::LatePolicy;
pub use letters::{
    DeadLetters, Letter, LetterFilter, LetterId, LetterRow, LetterSummary, RedriveAs,
    RedriveRequest, Refusal, Requested, RequestedRedrive, micros, time_of_micros,
};
pub use migrations::{Migrated, Migrations};
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
