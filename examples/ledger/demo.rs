//! What the demonstration runs on: a mock of Kafka within this process, SQLite in a temporary file.

use std::path::PathBuf;

use anyhow::Context as _;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use uuid::Uuid;

use crate::broker::kafka::KafkaTopic;

/// The mock forgets the oldest records of a partition beyond 5 MiB. A record takes 330 bytes.
const MOST_UNCONSUMED: i64 = 12_000;

/// librdkafka's mock cluster: real clients talk to it through real sockets.
pub(crate) struct MockKafka {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl MockKafka {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let cluster = MockCluster::new(3).context("cannot start the mock of Kafka")?;
        Ok(Self { cluster })
    }

    pub(crate) fn topic(
        &self,
        topic: &str,
        group: &str,
        partitions: i32,
    ) -> anyhow::Result<KafkaTopic> {
        self.cluster
            .create_topic(topic, partitions, 3)
            .context("cannot create a topic")?;
        let topic = KafkaTopic::new(&self.cluster.bootstrap_servers(), topic, group)?;
        Ok(topic
            .most_unconsumed(MOST_UNCONSUMED)
            // Longer than the 3 s for which the mock makes a new group wait: a member that it forgets
            // meanwhile is never answered. Not much longer, since whenever somebody leaves it makes
            // the group wait for a session less a second.
            .consumer_setting("session.timeout.ms", "3500"))
    }
}

/// A folder for one database; gone when this is dropped, unless it is kept.
#[derive(Debug)]
pub(crate) struct TemporaryFolder {
    path: PathBuf,
    keep: bool,
}

impl TemporaryFolder {
    pub(crate) fn create() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("oneffect-ledger-{}", Uuid::now_v7()));
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path, keep: false })
    }

    pub(crate) fn database(&self) -> String {
        self.path.join("ledger.db").to_string_lossy().into_owned()
    }

    /// Leaves it there, to be looked at.
    pub(crate) fn keep(&mut self) -> &std::path::Path {
        self.keep = true;
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
