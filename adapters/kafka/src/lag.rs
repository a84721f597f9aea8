//! What waits in the topics, and how old it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::inquiry::{Inquiry, Quiet};

/// Where the group stands in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionLag {
    pub(crate) partition: i32,
    /// `None` when the group has not committed any offset.
    pub(crate) committed: Option<i64>,
    /// The first offset of the log.
    pub(crate) start: i64,
    /// The offset behind its last record.
    pub(crate) end: i64,
    /// The first record behind the committed offset.
    pub(crate) unread: First,
    /// The first record of the log.
    pub(crate) first: First,
}

/// What is found first from some offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// A record; its timestamp in milliseconds since 1970, if it has one.
    Record(Option<i64>),
    /// Nothing that a consumer is given: the offsets up to the end are the markers of transactions.
    Nothing,
    /// It has not been found out.
    Unknown,
}

impl PartitionLag {
    /// The first offset that the group would read.
    fn next(&self) -> i64 {
        self.committed.unwrap_or(self.start).max(self.start)
    }

    /// How many offsets the group is behind. The markers of transactions at the end of a partition
    /// are never committed, so a group that has handled everything may seem to be one behind.
    pub(crate) fn behind(&self) -> i64 {
        match self.unread {
            First::Nothing => 0,
            First::Record(_) | First::Unknown => (self.end - self.next()).max(0),
        }
    }
}

/// A client that reads as the group does, and takes no part in it.
pub(crate) struct Observer {
    consumer: BaseConsumer<Quiet>,
    timeout: Duration,
}

impl Observer {
    pub(crate) fn new(inquiry: &Inquiry) -> Result<Self, KafkaError> {
        let mut client: ClientConfig = inquiry.client_config();
        // Tells when there is nothing left to read.
        client.set("enable.partition.eof", "true");
        client.set("auto.offset.reset", "earliest");
        let consumer = client.create_with_context(Quiet::default())?;
        Ok(Self {
            consumer,
            timeout: inquiry.config.connect_timeout,
        })
    }

    pub(crate) fn look_at(&self, topic: &str) -> Result<Vec<PartitionLag>, KafkaError> {
        let metadata = self.consumer.fetch_metadata(Some(topic), self.timeout)?;
        let partitions = metadata
            .topics()
            .iter()
            .flat_map(rdkafka::metadata::MetadataTopic::partitions);
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            list.add_partition(topic, partition.id());
        }
        if list.count() == 0 {
            return Ok(Vec::new());
        }
        let list = self.consumer.committed_offsets(list, self.timeout)?;
        let mut found = Vec::new();
        for element in list.elements() {
            let partition = element.partition();
            let (start, end) = self
                .consumer
                .fetch_watermarks(topic, partition, self.timeout)?;
            let committed = match element.offset() {
                Offset::Offset(offset) => Some(offset),
                Offset::Beginning
                | Offset::End
                | Offset::Stored
                | Offset::Invalid
                | Offset::OffsetTail(_) => None,
            };
            found.push(PartitionLag {
                partition,
                committed,
                start,
                end,
                unread: First::Unknown,
                first: First::Unknown,
            });
        }
        found.sort_by_key(|lag| lag.partition);
        let from_start: BTreeMap<i32, i64> = (found.iter())
            .filter(|lag| lag.start < lag.end)
            .map(|lag| (lag.partition, lag.start))
            .collect();
        let unread: BTreeMap<i32, i64> = (found.iter())
            .filter(|lag| lag.behind() > 0)
            .map(|lag| (lag.partition, lag.next()))
            .collect();
        let from_start = self.first_records(topic, &from_start)?;
        let unread = self.first_records(topic, &unread)?;
        for lag in &mut found {
            let nothing = First::Nothing;
            lag.first = *from_start.get(&lag.partition).unwrap_or(&nothing);
            lag.unread = *unread.get(&lag.partition).unwrap_or(&nothing);
        }
        Ok(found)
    }

    /// What comes first from these offsets on.
    fn first_records(
        &self,
        topic: &str,
        from: &BTreeMap<i32, i64>,
    ) -> Result<BTreeMap<i32, First>, KafkaError> {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in from {
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))?;
        }
        let unknown = from.keys().map(|partition| (*partition, First::Unknown));
        let mut found: BTreeMap<i32, First> = unknown.collect();
        self.consumer.assign(&list)?;
        let deadline = Instant::now() + self.timeout;
        while found.values().any(|first| *first == First::Unknown) && Instant::now() < deadline {
            let (partition, first) = match self.consumer.poll(Duration::from_millis(100)) {
                Some(Ok(record)) => {
                    let at = record.timestamp().to_millis();
                    (record.partition(), First::Record(at))
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => (partition, First::Nothing),
                // Others may follow, and mend by themselves.
                Some(Err(_)) | None => continue,
            };
            if let Some(known @ First::Unknown) = found.get_mut(&partition) {
                *known = first;
            }
        }
        self.consumer.unassign()?;
        Ok(found)
    }
}
