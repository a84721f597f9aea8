//! Whether a consumer does its work, and if not, why.

use std::fmt;

use tokio::sync::watch;
use tokio::time::Instant;

/// Whether a consumer is ready, as of one moment: it is unless something is wrong.
///
/// Its `Display` is a line for people and for the body of a `/readyz`: `ready`, or `not ready: the
/// store is away, for 12s: connection refused`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    reasons: Vec<NotReady>,
}

impl Health {
    /// Whether nothing is wrong.
    pub fn is_ready(&self) -> bool {
        self.reasons.is_empty()
    }

    /// All that is wrong, what began first first.
    pub fn reasons(&self) -> &[NotReady] {
        &self.reasons
    }

    /// Whether that is among what is wrong.
    pub fn has(&self, cause: Cause) -> bool {
        self.reasons.iter().any(|reason| reason.cause == cause)
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ready() {
            return f.write_str("ready");
        }
        for (at, reason) in self.reasons.iter().enumerate() {
            f.write_str(if at == 0 { "not ready: " } else { "; " })?;
            reason.fmt(f)?;
        }
        Ok(())
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotReady {
    /// What it is.
    pub cause: Cause,
    /// Since when.
    pub since: Instant,
    /// What is known beyond the cause, in words; empty when nothing is.
    pub detail: Box<str>,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, for {}s", self.cause, self.since.elapsed().as_secs())?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// What can be wrong with a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// It has not opened its store yet, or does not take part in its group yet.
    Starting,
    /// Nothing that it tries succeeds, so it waits, and tries one event now and then.
    CircuitOpen,
    /// The store cannot be reached, or takes no writes.
    StoreAway,
    /// The broker cannot be reached, or has not taken us back into the group.
    SourceAway,
    /// There is no room for another dead letter, so that lanes stand still.
    DeadLettersFull,
    /// The backlog is older than the inbox remembers, and nothing more is handled.
    LagGuard,
    /// It has been told to stop, or has ended.
    Stopping,
}

impl Cause {
    /// As metrics spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::CircuitOpen => "circuit_open",
            Self::StoreAway => "store_away",
            Self::SourceAway => "source_away",
            Self::DeadLettersFull => "dead_letters_full",
            Self::LagGuard => "lag_guard",
            Self::Stopping => "stopping",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "it is starting",
            Self::CircuitOpen => "the circuit is open",
            Self::StoreAway => "the store is away",
            Self::SourceAway => "the source is away",
            Self::DeadLettersFull => "the dead letters are full",
            Self::LagGuard => "the lag guard has tripped",
            Self::Stopping => "it is stopping",
        })
    }
}

/// Looks at a consumer's health; cheap to clone. Get it before the consumer runs, with
/// [`Consumer::health`](crate::Consumer::health).
///
/// ```
/// # use oneffect_core::HealthHandle;
/// /// What a `/readyz` answers.
/// fn readyz(health: &HealthHandle) -> (u16, String) {
///     let health = health.snapshot();
///     (if health.is_ready() { 200 } else { 503 }, health.to_string())
/// }
/// ```
///
/// Readiness is no liveness: a consumer that waits for its database or broker does what it should,
/// and a restart would not help it. `/healthz` is about the process alone.
#[derive(Clone, Debug)]
pub struct HealthHandle(watch::Sender<Health>);

impl HealthHandle {
    /// The handle of a consumer that is starting.
    pub(crate) fn starting() -> Self {
        let handle = Self(watch::Sender::new(Health::default()));
        handle.raise(Cause::Starting, "");
        handle
    }

    /// The health of this moment.
    pub fn snapshot(&self) -> Health {
        self.0.borrow().clone()
    }

    /// Waits for changes: of what is wrong, or of what is known about it.
    pub fn watch(&self) -> watch::Receiver<Health> {
        self.0.subscribe()
    }

    /// Something is wrong, since now unless it was before; what is known about it may be new.
    pub(crate) fn raise(&self, cause: Cause, detail: impl AsRef<str>) {
        let detail = detail.as_ref();
        self.0.send_if_modified(|health| {
            let known = health.reasons.iter_mut().find(|known| known.cause == cause);
            match known {
                Some(known) if *known.detail == *detail => return false,
                Some(known) => known.detail = detail.into(),
                None => health.reasons.push(NotReady {
                    cause,
                    since: Instant::now(),
                    detail: detail.into(),
                }),
            }
            true
        });
    }

    /// It is wrong no more.
    pub(crate) fn clear(&self, cause: Cause) {
        self.0.send_if_modified(|health| {
            let before = health.reasons.len();
            health.reasons.retain(|reason| reason.cause != cause);
            health.reasons.len() != before
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cause_keeps_its_since_when_until_it_is_cleared() {
        let handle = HealthHandle::starting();
        tokio::time::sleep(Duration::from_secs(5)).await;
        handle.raise(Cause::StoreAway, "refused");
        tokio::time::sleep(Duration::from_secs(7)).await;
        handle.raise(Cause::StoreAway, "timed out");
        assert_eq!(
            handle.snapshot().to_string(),
            "not ready: it is starting, for 12s; the store is away, for 7s: timed out"
        );
        handle.clear(Cause::Starting);
        handle.clear(Cause::StoreAway);
        assert!(handle.snapshot().is_ready());
        assert_eq!(handle.snapshot().to_string(), "ready");
        handle.raise(Cause::StoreAway, "");
        assert_eq!(
            handle.snapshot().to_string(),
            "not ready: the store is away, for 0s"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_watches_is_told_of_changes_and_of_nothing_else() {
        let handle = HealthHandle::starting();
        let mut watch = handle.watch();
        handle.raise(Cause::Starting, "");
        handle.clear(Cause::LagGuard);
        assert!(!watch.has_changed().unwrap());
        handle.clone().raise(Cause::LagGuard, "");
        assert!(watch.has_changed().unwrap());
        assert!(watch.borrow_and_update().has(Cause::LagGuard));
    }
}
