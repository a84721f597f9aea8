//! SQS: a standard or FIFO queue.

use anyhow::{Context as _, anyhow, bail};
use aws_config::BehaviorVersion;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use aws_smithy_http_client::tls;
use oneffect::{ENCODING_ATTRIBUTE, Sqs, encode_body};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::Broker;
use crate::stream::Message;

/// SQS takes no more messages in one call.
const BATCH: usize = 10;
/// Calls under way at once, to a standard queue.
const CALLS: usize = 8;
const TRIES: u32 = 5;

#[derive(Clone, Debug)]
pub(crate) struct SqsQueue {
    client: Client,
    queue_url: String,
}

impl SqsQueue {
    /// The endpoint is the AWS configuration's unless it is given.
    pub(crate) async fn new(queue_url: &str, endpoint: Option<&str>) -> Self {
        let https = aws_smithy_http_client::Builder::new()
            .tls_provider(tls::Provider::Rustls(
                tls::rustls_provider::CryptoMode::Ring,
            ))
            .build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(https);
        if let Some(endpoint) = endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        Self {
            client: Client::new(&loader.load().await),
            queue_url: queue_url.to_owned(),
        }
    }

    /// SQS's own rule, to the letter: no file is meant, and case counts.
    #[allow(clippy::case_sensitive_file_extension_comparisons)]
    fn is_fifo(&self) -> bool {
        self.queue_url.ends_with(".fifo")
    }

    async fn send_batch(self, messages: Vec<Message>) -> anyhow::Result<()> {
        let mut entries = Vec::new();
        for (place, message) in messages.iter().enumerate() {
            entries.push(self.entry(place, message)?);
        }
        for _ in 0..TRIES {
            let answer = (self.client.send_message_batch())
                .queue_url(&self.queue_url)
                .set_entries(Some(entries.clone()))
                .send()
                .await
                .context("cannot send to the queue")?;
            if let Some(refused) = answer.failed().iter().find(|failed| failed.sender_fault()) {
                bail!("SQS refuses a message: {refused:?}");
            }
            entries.retain(|entry| {
                answer
                    .failed()
                    .iter()
                    .any(|failed| failed.id() == entry.id())
            });
            if entries.is_empty() {
                return Ok(());
            }
        }
        Err(anyhow!("SQS failed to take messages, {TRIES} times"))
    }

    fn entry(
        &self,
        place: usize,
        message: &Message,
    ) -> anyhow::Result<SendMessageBatchRequestEntry> {
        let body = encode_body(&message.payload);
        let mut entry = SendMessageBatchRequestEntry::builder()
            .id(place.to_string())
            .message_body(body.text);
        if let Some(encoding) = body.encoding {
            let value = MessageAttributeValue::builder()
                .data_type("String")
                .string_value(encoding)
                .build()?;
            entry = entry.message_attributes(ENCODING_ATTRIBUTE, value);
        }
        if self.is_fifo() {
            // Each sending has a deduplication id of its own: with the event's, SQS would drop the
            // repeats of five minutes, and it is those that we are here for.
            entry = entry
                .message_group_id(&message.key)
                .message_deduplication_id(Uuid::now_v7().to_string());
        }
        Ok(entry.build()?)
    }
}

impl Broker for SqsQueue {
    type Source = Sqs;

    fn source(&self) -> Sqs {
        Sqs::with_client(self.client.clone(), &self.queue_url)
    }

    /// The queue must be there: its URL is known only once it is.
    async fn prepare(&self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn room(&self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn send(&self, messages: Vec<Message>) -> anyhow::Result<()> {
        // One call after the other keeps the order within a group.
        let at_once = if self.is_fifo() { 1 } else { CALLS };
        let mut calls = JoinSet::new();
        for batch in messages.chunks(BATCH) {
            if calls.len() == at_once
                && let Some(sent) = calls.join_next().await
            {
                sent??;
            }
            calls.spawn(self.clone().send_batch(batch.to_vec()));
        }
        while let Some(sent) = calls.join_next().await {
            sent??;
        }
        Ok(())
    }

    async fn backlog(&self) -> anyhow::Result<u64> {
        let counts = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let answer = (self.client.get_queue_attributes())
            .queue_url(&self.queue_url)
            .set_attribute_names(Some(counts.to_vec()))
            .send()
            .await
            .context("cannot look at the queue")?;
        let attributes = answer.attributes.unwrap_or_default();
        let count = |name| attributes.get(name)?.parse::<u64>().ok();
        Ok(counts.iter().filter_map(count).sum())
    }
}
