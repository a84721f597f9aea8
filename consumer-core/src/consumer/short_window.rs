//! A consumer whose duplicates may come after their events are forgotten does not start.

use tracing::{info, warn};

use super::config::ConsumerConfig;
use super::run_error::RunError;
use crate::handler::error_chain;
use crate::source::Source;
use crate::store::Store;
use crate::telemetry::TARGET;
use crate::window::{Window, WindowCheck};

/// Compares the inbox's window with the longest way that a duplicate can take. Before the source is
/// opened: a consumer that will not start must not disturb its group.
pub(super) async fn check<S: Store>(
    name: &str,
    store: &S,
    source: &mut dyn Source,
    config: &ConsumerConfig,
) -> Result<(), RunError> {
    let window = match store.window().await {
        Ok(Window::Unlimited) => return Ok(()),
        Ok(window) => window,
        Err(error) => {
            warn!(target: TARGET, consumer = name, cause = %error_chain(&error), "whether events are remembered for long enough is not checked: the store does not tell for how long");
            return Ok(());
        }
    };
    let check = WindowCheck::of(window, source, config).await;
    for reach in check.unknown() {
        warn!(target: TARGET, consumer = name, path = reach.path, window = %window, cause = reach.found, "whether events are remembered for long enough is not checked: nobody says for how long this path may bring duplicates");
    }
    if check.is_long_enough() {
        let horizon = check.horizon().map(crate::Span);
        info!(target: TARGET, consumer = name, window = %window, horizon = horizon.map(tracing::field::display), "events are remembered for long enough");
        return Ok(());
    }
    match &config.accept_short_window {
        Some(reason) => {
            warn!(target: TARGET, consumer = name, reason, arithmetic = %check, "duplicates may come after their events are forgotten, which was accepted");
            Ok(())
        }
        None => Err(RunError::ShortWindow(Box::new(check))),
    }
}
