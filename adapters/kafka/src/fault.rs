//! What an error of the client means for the source.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use oneffect_core::SourceError;
use rdkafka::types::RDKafkaErrorCode as Code;

/// What to do about an error.
#[derive(Debug)]
pub(crate) enum Fault {
    /// A person must act; the source ends.
    Ends(SourceError),
    /// No broker can be reached, as far as the client knows.
    AllBrokersDown,
    /// The poll thread was held up for longer than the group allows. The client leaves the group
    /// and joins it again by itself.
    Expelled,
    /// The client goes on trying.
    Passing,
}

impl Fault {
    pub(crate) fn of(code: Code, reason: &str) -> Self {
        if matches!(
            code,
            Code::BadMessage | Code::BadCompression | Code::NotImplemented
        ) {
            // The client goes on behind what it cannot read: a gap like that of compaction, and
            // the events in it would be lost.
            return Self::Ends(SourceError::fatal(format!(
                "records cannot be read, and going on would lose them: {reason}; a topic compressed with zstd needs the feature `zstd`"
            )));
        }
        if matches!(code, Code::AutoOffsetReset | Code::LogTruncation) {
            return Self::Ends(SourceError::fatal(format!(
                "the group's position is not in the log any more, and `auto.offset.reset` forbids to choose another: {reason}; set the group's offsets, or the setting to `earliest`"
            )));
        }
        if matches!(
            code,
            Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed
        ) {
            return Self::Ends(denied(reason));
        }
        if matches!(
            code,
            Code::InvalidGroupId | Code::InvalidSessionTimeout | Code::UnsupportedVersion
        ) {
            return Self::Ends(SourceError::misconfigured(format!(
                "the broker does not take these settings: {reason}"
            )));
        }
        if matches!(code, Code::AllBrokersDown) {
            return Self::AllBrokersDown;
        }
        if matches!(code, Code::PollExceeded) {
            return Self::Expelled;
        }
        Self::Passing
    }
}

/// The broker's access control stands in the way.
pub(crate) fn denied(reason: &str) -> SourceError {
    SourceError::misconfigured(format!(
        "the broker denies access: {reason}; the client needs READ and DESCRIBE on its topics and READ on its group"
    ))
}

/// An error after which the client is of no more use.
pub(crate) fn fatal(code: Code, reason: &str) -> SourceError {
    if matches!(code, Code::FencedInstanceId) {
        return SourceError::fatal(format!(
            "another consumer has joined the group with the same `group.instance.id`: {reason}; give each its own"
        ));
    }
    SourceError::fatal(format!("the client has given up: {reason}"))
}

/// Lets one log line a minute through for each kind of error: a broker that is down causes hundreds.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    /// By code, which is no hash key itself.
    seen: HashMap<i32, Seen>,
}

#[derive(Debug)]
struct Seen {
    logged_at: Instant,
    since: u64,
}

impl Quiet {
    /// Whether to log it, and how many of its kind were not logged since the last.
    pub(crate) fn admit(&mut self, code: Code, now: Instant) -> Option<u64> {
        const PAUSE: Duration = Duration::from_mins(1);
        let code = code as i32;
        match self.seen.get_mut(&code) {
            Some(seen) if now.saturating_duration_since(seen.logged_at) < PAUSE => {
                seen.since += 1;
                None
            }
            known => {
                let suppressed = known.map_or(0, |seen| seen.since);
                let (logged_at, since) = (now, 0);
                self.seen.insert(code, Seen { logged_at, since });
                Some(suppressed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_would_skip_ends_the_source() {
        for code in [Code::BadMessage, Code::BadCompression, Code::NotImplemented] {
            let fault = Fault::of(code, "at offset 7");
            assert!(
                matches!(fault, Fault::Ends(SourceError::Fatal { .. })),
                "{code:?}"
            );
        }
    }

    /// Field case 010.
    #[test]
    fn exceeding_the_poll_interval_is_not_the_end() {
        assert!(matches!(Fault::of(Code::PollExceeded, ""), Fault::Expelled));
    }

    #[test]
    fn lost_connections_pass() {
        for code in [
            Code::BrokerTransportFailure,
            Code::Resolve,
            Code::RequestTimedOut,
        ] {
            assert!(matches!(Fault::of(code, ""), Fault::Passing), "{code:?}");
        }
    }

    #[test]
    fn a_second_consumer_of_the_same_instance_id_is_named_as_the_cause() {
        let error = fatal(Code::FencedInstanceId, "fenced");
        assert!(error.to_string().contains("group.instance.id"), "{error}");
    }

    #[test]
    fn an_error_is_logged_once_a_minute_with_the_number_of_its_repeats() {
        let mut quiet = Quiet::default();
        let start = Instant::now();
        assert_eq!(quiet.admit(Code::Resolve, start), Some(0));
        assert_eq!(quiet.admit(Code::Resolve, start), None);
        assert_eq!(quiet.admit(Code::Resolve, start), None);
        assert_eq!(quiet.admit(Code::RequestTimedOut, start), Some(0));
        assert_eq!(
            quiet.admit(Code::Resolve, start + Duration::from_mins(1)),
            Some(2)
        );
    }
}
