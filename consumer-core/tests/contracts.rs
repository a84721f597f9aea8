//! The doubles pass the suites of the real ones.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use oneffect_core::testing::source_contract::Fixture;
use oneffect_core::testing::{
    MemberId, MemoryLog, MemoryLogSource, MemoryQueue, MemoryQueueSource, Message,
};

struct OnLog {
    log: MemoryLog,
    reader: Mutex<Option<MemberId>>,
}

impl Fixture for OnLog {
    type Source = MemoryLogSource;
    const ORDERED: bool = true;
    const COUNTS_RECEIVES: bool = false;
    const HANDS_OUT_AGAIN: bool = false;
    const TOMBSTONES: bool = true;
    const EMPTY_PAYLOADS: bool = true;
    const HEADER_LISTS: bool = true;

    async fn fresh() -> Option<Self> {
        let log = MemoryLog::with_commit_interval("orders", 1, Duration::from_secs(5));
        let reader = Mutex::default();
        Some(Self { log, reader })
    }

    async fn produce(&self, messages: Vec<Message>) {
        for message in messages {
            self.log.produce(0, message);
        }
    }

    async fn source(&self) -> MemoryLogSource {
        let source = self.log.source();
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(source.member());
        source
    }

    async fn reassign(&self) -> bool {
        let reader = self
            .reader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .expect("a source is open");
        self.log.revoke(reader, 0, Duration::from_secs(10));
        self.log.assign(reader, 0);
        true
    }
}

struct OnQueue<const FIFO: bool>(MemoryQueue);

impl<const FIFO: bool> Fixture for OnQueue<FIFO> {
    type Source = MemoryQueueSource;
    const ORDERED: bool = FIFO;
    const COUNTS_RECEIVES: bool = true;
    const HANDS_OUT_AGAIN: bool = true;
    const TOMBSTONES: bool = true;
    const EMPTY_PAYLOADS: bool = true;
    const HEADER_LISTS: bool = true;

    async fn fresh() -> Option<Self> {
        let queue = if FIFO {
            MemoryQueue::fifo("orders")
        } else {
            MemoryQueue::standard("orders")
        };
        Some(Self(queue))
    }

    async fn produce(&self, messages: Vec<Message>) {
        for message in messages {
            self.0.send(message);
        }
    }

    async fn source(&self) -> MemoryQueueSource {
        self.0.source()
    }
}

mod a_log {
    oneffect_core::source_contract!(super::OnLog, (start_paused = true));
}

mod a_standard_queue {
    oneffect_core::source_contract!(super::OnQueue<false>, (start_paused = true));
}

mod a_fifo_queue {
    oneffect_core::source_contract!(super::OnQueue<true>, (start_paused = true));
}
