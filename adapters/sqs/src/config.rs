//! Options of the source.

use std::time::Duration;

use oneffect_core::SourceError;

/// Options of [`Sqs`](crate::Sqs). The defaults suit most queues.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqsConfig {
    /// How long SQS may hold an answer back while the queue is empty, in whole seconds from 1 to
    /// 20. Default 5.
    ///
    /// A receive that is abandoned can take messages with it, which then hide for a visibility
    /// timeout. So a stop waits for outstanding receives, and this is how long that takes on an
    /// empty queue: keep it below the consumer's drain deadline (8 s by default). An idle consumer
    /// makes one request in this time: at 5 s some 520,000 a month, at 20 s 130,000.
    pub wait_time: Duration,
    /// How long a message stays hidden from others after this process has died, in whole seconds
    /// from 1 to 43,200. Default 30.
    ///
    /// While the process lives, what it holds is extended at half of this time. It is sent with
    /// every receive, so the queue's own setting does not matter.
    pub visibility: Duration,
    /// How many receives may be outstanding at a time, from 1 to 100. Default 8.
    ///
    /// One is outstanding while the queue is idle, more only while they come back full. A receive
    /// brings up to ten messages: this many times ten may arrive beyond the consumer's own limit.
    pub max_pollers: usize,
    /// How often the consumer tries an event before it sets it aside. Default 14, as the
    /// consumer's. Used for a check at start only: the queue's redrive policy must not be faster.
    pub attempt_limit: u32,
}

impl Default for SqsConfig {
    fn default() -> Self {
        Self {
            wait_time: Duration::from_secs(5),
            visibility: Duration::from_secs(30),
            max_pollers: 8,
            attempt_limit: 14,
        }
    }
}

impl SqsConfig {
    /// Sets [`SqsConfig::wait_time`].
    #[must_use]
    pub fn wait_time(mut self, wait_time: Duration) -> Self {
        self.wait_time = wait_time;
        self
    }

    /// Sets [`SqsConfig::visibility`].
    #[must_use]
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.visibility = visibility;
        self
    }

    /// Sets [`SqsConfig::max_pollers`].
    #[must_use]
    pub fn max_pollers(mut self, max_pollers: usize) -> Self {
        self.max_pollers = max_pollers;
        self
    }

    /// Sets [`SqsConfig::attempt_limit`].
    #[must_use]
    pub fn attempt_limit(mut self, attempt_limit: u32) -> Self {
        self.attempt_limit = attempt_limit;
        self
    }

    /// Checks every option; [`Sqs`](crate::Sqs) does so when it is opened.
    ///
    /// # Errors
    /// [`SourceError::Misconfigured`], naming the option, its value and what it may be.
    pub fn validate(&self) -> Result<(), SourceError> {
        whole_seconds("wait_time", self.wait_time, 1, 20)?;
        whole_seconds("visibility", self.visibility, 1, 43_200)?;
        if !(1..=100).contains(&self.max_pollers) {
            return Err(SourceError::misconfigured(format!(
                "max_pollers is {}, it must be from 1 to 100",
                self.max_pollers
            )));
        }
        Ok(())
    }
}

/// SQS counts in whole seconds; rounding silently would change what was asked for.
fn whole_seconds(name: &str, value: Duration, least: u64, most: u64) -> Result<(), SourceError> {
    if value.subsec_nanos() == 0 && (least..=most).contains(&value.as_secs()) {
        return Ok(());
    }
    Err(SourceError::misconfigured(format!(
        "{name} is {value:?}, it must be whole seconds from {least} to {most}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        SqsConfig::default().validate().unwrap();
    }

    #[test]
    fn what_sqs_would_refuse_or_round_is_refused() {
        let config = SqsConfig::default;
        for wrong in [
            config().wait_time(Duration::ZERO),
            config().wait_time(Duration::from_secs(21)),
            config().wait_time(Duration::from_millis(1500)),
            config().visibility(Duration::ZERO),
            config().visibility(Duration::from_secs(43_201)),
            config().max_pollers(0),
        ] {
            let refused = wrong.validate();

            assert!(
                matches!(refused, Err(SourceError::Misconfigured { .. })),
                "{wrong:?}"
            );
        }
    }
}
