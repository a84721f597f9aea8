//! The topics that all contenders read, each filled once.

use std::process::{Command, Stdio};

use oneffect_benches::ledger::Expected;
use serde::Deserialize;

use crate::Options;
use crate::contenders;

/// A topic, and what it holds.
#[derive(Debug)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) deliveries: u64,
    pub(crate) expected: Expected,
}

/// What the load generator answers.
#[derive(Debug, Deserialize)]
struct Summary {
    deliveries: u64,
    events: i64,
    volume: i64,
}

impl Topic {
    pub(crate) fn fill(
        options: &Options,
        name: &str,
        messages: u64,
        seed: u64,
    ) -> Result<Self, String> {
        // Names of this run: what an earlier one has left does no harm.
        let name = format!("{name}-{}", std::process::id());
        let output = Command::new(contenders::program("load")?)
            .args(["--brokers", &options.cluster.brokers, "--topic", &name])
            .args([
                "--messages",
                &messages.to_string(),
                "--seed",
                &seed.to_string(),
            ])
            .args(["--partitions", &options.partitions.to_string()])
            .args([
                "--duplicates",
                &options.duplicates.to_string(),
                "--key",
                &options.key,
            ])
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("load: {error}"))?;
        if !output.status.success() {
            return Err(format!("load: {}", output.status));
        }
        let summary: Summary =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("load: {error}"))?;
        Ok(Self {
            name,
            deliveries: summary.deliveries,
            expected: Expected {
                events: summary.events,
                volume: summary.volume,
            },
        })
    }
}
