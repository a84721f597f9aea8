//! Doubles of brokers and databases, and the suites that they and the real ones must pass.
//!
//! Everything here runs on one thread with a paused clock and, given a seed, does the same each
//! time. The doubles are strict where the real ones are forgiving: what a runtime must never do
//! panics here.

mod memory_log;
mod memory_queue;
mod memory_store;
mod message;
pub mod source_contract;
pub mod store_contract;
mod unreliable;

pub use memory_log::{MemberId, MemoryLog, MemoryLogSource};
pub use memory_queue::{MemoryQueue, MemoryQueueSource};
pub use memory_store::{MemoryConnection, MemoryError, MemoryRow, MemoryStore, MemoryUnit};
pub use message::Message;
pub use unreliable::{Call, Fault, Injected, InjectedError, Unreliable, UnreliableUnit};
