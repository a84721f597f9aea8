//! The first word with the store.

use std::error::Error;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::day::DaysFrom;
use crate::handler::error_chain;
use crate::health::{Cause, HealthHandle};
use crate::store::{Blame, ConsumerId, Store, StoreError};
use crate::telemetry::TARGET;

/// A store that is busy or away when the consumer starts is waited for, as it is later on; but not
/// for ever, since it may as well be an address that is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens the store for a consumer of that name.
pub(super) async fn open<S: Store>(
    store: &S,
    name: &str,
    days: DaysFrom,
    health: &HealthHandle,
) -> Result<ConsumerId, StoreError> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(50);
    loop {
        let error = match store.open(name, days).await {
            Ok(consumer) => {
                health.clear(Cause::StoreAway);
                return Ok(consumer);
            }
            Err(error) => error,
        };
        if blame(store, &error) == Blame::Event || Instant::now() >= deadline {
            return Err(error);
        }
        health.raise(Cause::StoreAway, error_chain(&error));
        warn!(target: TARGET, consumer = name, cause = %error_chain(&error), "the store cannot be opened yet");
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// Whose fault an error is: the first in its chain that the store knows decides.
pub(super) fn blame<S: Store>(store: &S, error: &(dyn Error + 'static)) -> Blame {
    let mut link = Some(error);
    while let Some(error) = link {
        if let Some(blame) = store.blame(error) {
            return blame;
        }
        link = error.source();
    }
    Blame::Event
}
