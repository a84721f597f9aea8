//! The signals that end a process.

use tracing::{info, warn};

use crate::telemetry::TARGET;

/// Completes at the first SIGTERM or SIGINT (Ctrl-C), for [`Consumer::run`](crate::Consumer::run).
///
/// From then on a second signal ends the process at once, with exit code 130: somebody does not
/// want to wait for the drain. That is safe, as a crash is: nothing is lost or doubled.
///
/// # Panics
/// Outside of a tokio runtime with IO enabled.
pub async fn shutdown_signal() {
    let mut signals = Signals::new();
    signals.next().await;
    info!(target: TARGET, "stopping; a second signal ends the process at once");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        if let Ok(runtime) = runtime {
            runtime.block_on(async {
                Signals::new().next().await;
                warn!(target: TARGET, "second signal: ending at once");
                std::process::exit(130);
            });
        }
    });
}

struct Signals {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    fn new() -> Self {
        Self {
            #[cfg(unix)]
            terminate: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
                .inspect_err(|error| warn!(target: TARGET, %error, "cannot listen for SIGTERM"))
                .ok(),
        }
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(terminate) = &mut self.terminate {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
        // Without a signal to wait for there is nothing that could stop the consumer this way.
        if let Err(error) = tokio::signal::ctrl_c().await {
            warn!(target: TARGET, %error, "cannot listen for Ctrl-C");
            std::future::pending::<()>().await;
        }
    }
}
