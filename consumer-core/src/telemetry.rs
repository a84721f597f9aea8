//! The names of spans and fields, in one place: OpenTelemetry's messaging conventions are still
//! "development" and have been renamed before.

/// The span of one unit of work.
pub(crate) const PROCESS: &str = "process";

/// Everything this crate logs goes to this target, so that one directive turns it up or down.
pub(crate) const TARGET: &str = "oneffect";
