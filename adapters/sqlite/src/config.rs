//! The options of the store.

use std::time::Duration;

use oneffect_core::StoreError;

/// All options, with their defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteConfig {
    /// How long a unit of work waits to begin while another process writes. Default 5 s.
    pub busy_timeout: Duration,
    /// How long to wait for the one connection before the database counts as away. Default 60 s.
    pub acquire_timeout: Duration,
}

impl Default for SqliteConfig {
    fn default() -> Self {
        Self {
            busy_timeout: Duration::from_secs(5),
            acquire_timeout: Duration::from_mins(1),
        }
    }
}

impl SqliteConfig {
    /// Sets [`SqliteConfig::busy_timeout`].
    #[must_use]
    pub fn busy_timeout(mut self, busy_timeout: Duration) -> Self {
        self.busy_timeout = busy_timeout;
        self
    }

    /// Sets [`SqliteConfig::acquire_timeout`].
    #[must_use]
    pub fn acquire_timeout(mut self, acquire_timeout: Duration) -> Self {
        self.acquire_timeout = acquire_timeout;
        self
    }

    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        if self.acquire_timeout.is_zero() {
            return Err(StoreError::misconfigured(
                "acquire_timeout is 0: no unit of work could ever begin",
            ));
        }
        Ok(())
    }
}
