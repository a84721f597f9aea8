//! `oneffect`: operates oneffect's inbox from a terminal.

use std::process::ExitCode;

use oneffect_cli::{Console, run};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[tokio::main]
async fn main() -> ExitCode {
    start_logging();
    run(std::env::args_os(), &mut Console::standard())
        .await
        .into()
}

/// What the libraries log, on standard error; nothing unless `RUST_LOG` asks for it, since every
/// command reports by itself.
fn start_logging() {
    let asked = std::env::var("RUST_LOG").ok();
    let asked: Option<Targets> = asked.and_then(|text| text.parse().ok());
    let targets = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::OFF));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .init();
}
