//! A consumer in a process of its own, for what only a process can suffer: `kill -9`, SIGSTOP.

use std::process::Stdio;

use serde::{Deserialize, Serialize};

use crate::end_to_end::brokers::BrokerSpec;
use crate::end_to_end::databases::DatabaseSpec;
use crate::end_to_end::run_until_killed;

const VARIABLE: &str = "ONEFFECT_TEST_CHILD";

/// What the child needs to know.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Spec {
    pub(crate) broker: BrokerSpec,
    pub(crate) database: DatabaseSpec,
    /// How long each handler sleeps while its transaction is open.
    pub(crate) delay_ms: u64,
    /// After how many ends of its process, alone, an event is set aside.
    pub(crate) crash_guard: Option<u32>,
}

/// A child process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Child(std::process::Child);

impl Child {
    /// This binary again, with one test in it that is the consumer.
    pub(crate) fn start(spec: &Spec) -> Self {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child::consumes_until_it_is_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(VARIABLE, serde_json::to_string(spec).unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = std::process::Command::new("kill")
            .args([&format!("-{signal}"), &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Whether it has come to its end by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Waits for its end, and tells how it ended.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "this is the child process of other tests"]
async fn consumes_until_it_is_killed() {
    let Ok(spec) = std::env::var(VARIABLE) else {
        return;
    };
    run_until_killed(serde_json::from_str(&spec).unwrap()).await;
}
