//! The names of spans and fields, in one place: OpenTelemetry's messaging conventions are still
//! "development" and have been renamed before.

/// Everything this crate logs goes to this target, so that one directive turns it up or down.
pub(crate) const TARGET: &str = "oneffect";

/// The span of taking deliveries over from the source.
pub(crate) const RECEIVE: &str = "receive";
/// The span of one run of a unit of work.
pub(crate) const PROCESS: &str = "process";
/// The span of telling the source what became of a batch.
pub(crate) const SETTLE: &str = "settle";

/// Which kind of broker.
pub(crate) const SYSTEM: &str = "messaging.system.name";
/// The consumer's name.
pub(crate) const CONSUMER: &str = "messaging.consumer.group.name";
/// How many deliveries a span is about.
pub(crate) const BATCH: &str = "messaging.batch.message_count";
