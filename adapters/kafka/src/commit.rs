//! Telling the coordinator how far the group is.
//!
//! Commits are sent by a thread of their own that waits for the answer: librdkafka reports the
//! result of a commit that nobody waits for only to a callback that rdkafka does not set, and it
//! keeps a commit that it cannot send for later, with the generation of then; it would speak for
//! partitions that are somebody else's by that time.

use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::Offset as At;
use rdkafka::types::RDKafkaErrorCode as Code;
use tracing::{debug, warn};

use crate::TARGET;
use crate::context::Context;
use crate::state::{Offset, Shared};

/// The right to commit: one at a time has it, and holds it until the coordinator has answered. So
/// when an assignment is ended by its holder, no commit for it is on its way.
#[derive(Debug)]
pub(crate) struct Commits<'a>(pub(crate) MutexGuard<'a, Refused>);

/// How many commits the coordinator did not take.
#[derive(Debug, Default)]
pub(crate) struct Refused(u64);

impl Commits<'_> {
    /// Commits, waits for the answer, and tries again what passes by itself.
    pub(crate) fn commit(
        mut self,
        consumer: &BaseConsumer<Context>,
        offsets: &[Offset],
    ) -> KafkaResult<()> {
        /// A rebalance that has just begun, or a coordinator that has just moved, is over soon.
        const ATTEMPTS: u32 = 10;
        const PAUSE: Duration = Duration::from_millis(100);
        for _ in 1..ATTEMPTS {
            match self.commit_once(consumer, offsets) {
                Err(error) if passes(&error) => thread::sleep(PAUSE),
                result => return result,
            }
        }
        self.commit_once(consumer, offsets)
    }

    /// A commit that is refused is no failure: what has been settled since goes with the next one,
    /// and what is not committed is delivered again and found to be a duplicate.
    fn commit_once(
        &mut self,
        consumer: &BaseConsumer<Context>,
        offsets: &[Offset],
    ) -> KafkaResult<()> {
        if offsets.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for offset in offsets {
            let at = At::Offset(offset.next);
            list.add_partition_offset(&offset.topic, offset.partition, at)?;
        }
        let result = consumer.commit(&list, CommitMode::Sync);
        if let Err(error) = &result {
            let Refused(refused) = &mut *self.0;
            *refused += 1;
            if is_routine(error) {
                debug!(target: TARGET, %error, refused, "the coordinator refused a commit");
            } else {
                warn!(target: TARGET, %error, refused, "a commit failed; it is tried again");
            }
        }
        result
    }
}

/// Whether the same commit may succeed in a moment.
fn passes(error: &KafkaError) -> bool {
    error.rdkafka_error_code().is_some_and(|code| {
        matches!(
            code,
            Code::RebalanceInProgress | Code::CoordinatorLoadInProgress | Code::NotCoordinator
        )
    })
}

/// Whether it belongs to a group whose members come and go.
fn is_routine(error: &KafkaError) -> bool {
    passes(error)
        || error.rdkafka_error_code().is_some_and(|code| {
            matches!(
                code,
                Code::IllegalGeneration | Code::UnknownMemberId | Code::StaleMemberEpoch
            )
        })
}

/// Commits what has moved, again and again, until the source is closed.
pub(crate) fn run(shared: &Shared, consumer: &Arc<BaseConsumer<Context>>, interval: Duration) {
    loop {
        thread::park_timeout(interval);
        if shared.is_closing() {
            // The last commit is the poll thread's.
            return;
        }
        if consumer.assignment_lost() {
            continue;
        }
        let mut commits = shared.hold_commits();
        let offsets = shared.lock().uncommitted();
        if commits.commit_once(consumer, &offsets).is_ok() {
            shared.lock().committed(&offsets);
        }
    }
}
