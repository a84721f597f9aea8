//! Where events are sent to, and where they are consumed from.

pub(crate) mod kafka;
pub(crate) mod sqs;

use oneffect::Source;

use crate::stream::Message;

/// A topic or a queue.
pub(crate) trait Broker: Clone + Send + Sync + 'static {
    type Source: Source;

    /// One more consumer of it.
    fn source(&self) -> Self::Source;

    /// Makes sure that there is something to send to.
    fn prepare(&self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Waits until the broker can take more, where it would forget what nobody has consumed yet.
    fn room(&self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Sends, and waits until the broker has acknowledged all of it.
    fn send(&self, messages: Vec<Message>) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// How many messages the consumers have not acknowledged yet.
    fn backlog(&self) -> impl Future<Output = anyhow::Result<u64>> + Send;
}
