//! The calls to SQS: their timeouts, and what their failures mean.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::{Builder, StalledStreamProtectionConfig};
use aws_sdk_sqs::error::{BuildError, DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName,
};

use crate::config::SqsConfig;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How much longer than its wait a receive may take. A connection that is dead but not closed would
/// keep a poller waiting for ever otherwise.
const RECEIVE_SLACK: Duration = Duration::from_secs(5);

/// What SQS is to be told about messages, in one request.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) kind: CallKind,
    /// At most ten, each of another message.
    pub(crate) entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallKind {
    Delete,
    ChangeVisibility,
}

/// One message's part in a call.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The ledger's number of the message.
    pub(crate) number: u64,
    pub(crate) handle: Arc<str>,
    pub(crate) wish: Wish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Delete,
    Hide { for_seconds: u32 },
    Show { after_seconds: u32 },
}

/// What SQS said to one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    /// The receipt handle has ended. That is no failure: the message is deleted already, or comes
    /// again with a new handle.
    Lost(String),
    Failed {
        reason: String,
        /// It is not the request's fault.
        retriable: bool,
    },
}

/// A call that got no answer to its entries.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) kind: CallErrorKind,
    pub(crate) message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallErrorKind {
    /// No answer, or the service's own failure: whether it did anything is unknown.
    Unreachable,
    /// Too many requests, or too many messages in flight.
    Throttled,
    /// No right, no such queue, and the like.
    Refused,
}

#[derive(Debug)]
pub(crate) struct Api {
    client: Client,
    queue_url: String,
    wait_seconds: i32,
    visibility_seconds: i32,
    receiving: Builder,
    settling: Builder,
}

impl Api {
    pub(crate) fn new(client: Client, queue_url: String, config: &SqsConfig) -> Self {
        // Well before what the call is about shows again, so that there is time for another try.
        let settle_timeout =
            (config.visibility / 4).clamp(Duration::from_secs(1), Duration::from_secs(10));
        Self {
            client,
            queue_url,
            wait_seconds: seconds(config.wait_time),
            visibility_seconds: seconds(config.visibility),
            receiving: overrides(config.wait_time + RECEIVE_SLACK),
            settling: overrides(settle_timeout),
        }
    }

    /// One long poll. `attempt` is the `ReceiveRequestAttemptId` of a FIFO queue.
    pub(crate) async fn receive(&self, attempt: Option<String>) -> Result<Vec<Message>, CallError> {
        let output = (self.client.receive_message())
            .queue_url(&self.queue_url)
            .max_number_of_messages(10)
            .wait_time_seconds(self.wait_seconds)
            .visibility_timeout(self.visibility_seconds)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .set_receive_request_attempt_id(attempt)
            .customize()
            .config_override(self.receiving.clone())
            .send()
            .await
            .map_err(|error| CallError::of(&error))?;
        Ok(output.messages.unwrap_or_default())
    }

    /// One answer for each entry, in the order given.
    pub(crate) async fn call(&self, call: &Call) -> Result<Vec<Answer>, CallError> {
        let (successful, failed) = match call.kind {
            CallKind::Delete => self.delete(&call.entries).await?,
            CallKind::ChangeVisibility => self.change_visibility(&call.entries).await?,
        };
        let mut answers = vec![
            Answer::Failed {
                reason: "the answer does not mention it".to_owned(),
                retriable: true,
            };
            call.entries.len()
        ];
        let by_position = |id: &str| id.parse::<usize>().ok();
        for id in &successful {
            if let Some(answer) = by_position(id).and_then(|at| answers.get_mut(at)) {
                *answer = Answer::Done;
            }
        }
        for failure in &failed {
            if let Some(answer) = by_position(failure.id()).and_then(|at| answers.get_mut(at)) {
                *answer = Answer::of(failure);
            }
        }
        Ok(answers)
    }

    async fn delete(&self, entries: &[Entry]) -> Result<EntryAnswers, CallError> {
        let entries = (entries.iter().enumerate())
            .map(|(at, entry)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(at.to_string())
                    .receipt_handle(&*entry.handle)
                    .build()
            })
            .collect::<Result<_, BuildError>>()?;
        let output = (self.client.delete_message_batch())
            .queue_url(&self.queue_url)
            .set_entries(Some(entries))
            .customize()
            .config_override(self.settling.clone())
            .send()
            .await
            .map_err(|error| CallError::of(&error))?;
        let successful = output
            .successful
            .into_iter()
            .map(|entry| entry.id)
            .collect();
        Ok((successful, output.failed))
    }

    async fn change_visibility(&self, entries: &[Entry]) -> Result<EntryAnswers, CallError> {
        let entries = (entries.iter().enumerate())
            .map(|(at, entry)| {
                let seconds = match entry.wish {
                    Wish::Hide { for_seconds } => for_seconds,
                    Wish::Show { after_seconds } => after_seconds,
                    Wish::Delete => 0,
                };
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(at.to_string())
                    .receipt_handle(&*entry.handle)
                    .visibility_timeout(i32::try_from(seconds).unwrap_or(i32::MAX))
                    .build()
            })
            .collect::<Result<_, BuildError>>()?;
        let output = (self.client.change_message_visibility_batch())
            .queue_url(&self.queue_url)
            .set_entries(Some(entries))
            .customize()
            .config_override(self.settling.clone())
            .send()
            .await
            .map_err(|error| CallError::of(&error))?;
        let successful = output
            .successful
            .into_iter()
            .map(|entry| entry.id)
            .collect();
        Ok((successful, output.failed))
    }
}

/// The ids of the entries that succeeded, and those that failed.
type EntryAnswers = (Vec<String>, Vec<BatchResultErrorEntry>);

/// Settings of one kind of call, whatever the client's own are.
fn overrides(timeout: Duration) -> Builder {
    aws_sdk_sqs::config::Config::builder()
        .timeout_config(
            TimeoutConfig::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .operation_attempt_timeout(timeout)
                .operation_timeout(timeout)
                .build(),
        )
        // Retrying is done here: by entry, in order of priority, and not after a stop.
        .retry_config(RetryConfig::disabled())
        // It takes a long poll on an empty queue for a stalled download
        // (https://github.com/awslabs/aws-sdk-rust/issues/1148). The timeout guards against those.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

impl Answer {
    fn of(failure: &BatchResultErrorEntry) -> Self {
        let reason = match failure.message() {
            Some(message) => format!("{}: {message}", failure.code()),
            None => failure.code().to_owned(),
        };
        // Older codes come with a prefix, `AWS.SimpleQueueService.`.
        let code = failure.code().rsplit('.').next().unwrap_or_default();
        match code {
            // An expired handle of a FIFO queue, and a visibility beyond 12 hours, are invalid
            // parameters; nothing else in these entries can be one.
            "ReceiptHandleIsInvalid" | "MessageNotInflight" | "InvalidParameterValue" => {
                Self::Lost(reason)
            }
            _ => Self::Failed {
                reason,
                retriable: !failure.sender_fault(),
            },
        }
    }
}

impl CallError {
    fn of<E>(error: &SdkError<E>) -> Self
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        Self {
            kind: CallErrorKind::of(error),
            message: DisplayErrorContext(error).to_string(),
        }
    }
}

impl From<BuildError> for CallError {
    fn from(error: BuildError) -> Self {
        Self {
            kind: CallErrorKind::Refused,
            message: error.to_string(),
        }
    }
}

impl CallErrorKind {
    pub(crate) fn of<E: ProvideErrorMetadata>(error: &SdkError<E>) -> Self {
        let Some(response) = error.raw_response() else {
            return Self::Unreachable;
        };
        let code = error.code().and_then(|code| code.rsplit('.').next());
        match (response.status().as_u16(), code.unwrap_or_default()) {
            (429, _)
            | (
                _,
                "OverLimit"
                | "RequestThrottled"
                | "RequestThrottledException"
                | "Throttling"
                | "ThrottlingException"
                | "TooManyRequestsException"
                | "KmsThrottled"
                | "SlowDown",
            ) => Self::Throttled,
            // Credentials that have run out are replaced by their provider.
            (500.., _) | (_, "ExpiredToken" | "ExpiredTokenException" | "RequestExpired") => {
                Self::Unreachable
            }
            // An answer that is none: from a proxy, say.
            _ if !matches!(error, SdkError::ServiceError(_)) => Self::Unreachable,
            _ => Self::Refused,
        }
    }
}
