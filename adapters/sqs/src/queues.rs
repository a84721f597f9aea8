//! The queue and its dead-letter queue: for how long they may bring duplicates, and what a person
//! should know about them.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::QueueAttributeName as Name;
use oneffect_core::{Finding, Reach, Span};

use crate::open::{self, SPARE_RECEIVES, is_denied};

/// Whoever waits for a start waits for this.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A queue's attributes, or why they are not known.
type Attributes = Result<HashMap<Name, String>, String>;

#[derive(Debug)]
pub(crate) struct Queues {
    name: String,
    attributes: Attributes,
    dead_letters: Option<DeadLetterQueue>,
}

#[derive(Debug)]
struct DeadLetterQueue {
    name: String,
    attributes: Attributes,
}

impl Queues {
    pub(crate) async fn ask(client: &Client, queue_url: &str) -> Self {
        let attributes = attributes(client, queue_url).await;
        let policy = attributes
            .as_ref()
            .ok()
            .and_then(|found| found.get(&Name::RedrivePolicy));
        let dead_letters = match policy.and_then(|policy| dead_letter_arn(policy)) {
            None => None,
            Some(arn) => Some(DeadLetterQueue::ask(client, &arn).await),
        };
        Self {
            name: open::queue_name(queue_url).unwrap_or(queue_url).to_owned(),
            attributes,
            dead_letters,
        }
    }

    /// The ways through the queue, and through its dead-letter queue.
    pub(crate) fn reaches(&self, visibility: Duration) -> Vec<Reach> {
        let path = format!("queue {}", self.name);
        let attributes = match &self.attributes {
            Ok(attributes) => attributes,
            Err(reason) => return vec![Reach::unknown(path, reason.clone())],
        };
        let Some(kept) = retention(attributes) else {
            let why = "SQS does not tell its MessageRetentionPeriod";
            return vec![Reach::unknown(path, why)];
        };
        let found = "MessageRetentionPeriod of the queue";
        let mut reaches = vec![Reach::lasting(path.clone(), kept, found)];
        let policy = attributes.get(&Name::RedrivePolicy);
        if let Some(count) = policy.and_then(|policy| open::max_receive_count(policy)) {
            let bouncing = visibility.saturating_mul(count).min(kept);
            reaches.push(Reach::lasting(
                format!("{path}, redelivered"),
                bouncing,
                format!(
                    "maxReceiveCount {count} x {} of visibility",
                    Span(visibility)
                ),
            ));
        }
        if let Some(dead_letters) = &self.dead_letters {
            reaches.push(dead_letters.reach(&path, kept, open::is_fifo(&self.name)));
        }
        reaches
    }

    pub(crate) fn examine(&self, attempt_limit: u32) -> Vec<Finding> {
        let attributes = match &self.attributes {
            Ok(attributes) => attributes,
            Err(reason) => {
                return vec![Finding::warning(
                    format!(
                        "the attributes of queue {} are not known: {reason}",
                        self.name
                    ),
                    "its retention and its redrive policy were not checked",
                    "allow sqs:GetQueueAttributes, and check URL, region and credentials",
                )];
            }
        };
        let mut findings = vec![self.waiting(attributes)];
        findings.push(match attributes.get(&Name::RedrivePolicy) {
            None => Finding::ok(format!("queue {} has no dead-letter queue", self.name)),
            Some(policy) => redrive_policy(policy, attempt_limit),
        });
        findings.extend(
            self.dead_letters
                .as_ref()
                .and_then(DeadLetterQueue::examine),
        );
        findings
    }

    fn waiting(&self, attributes: &HashMap<Name, String>) -> Finding {
        let kept = retention(attributes).map_or_else(String::new, |kept| {
            format!(", and keeps them for {}", Span(kept))
        });
        Finding::ok(format!(
            "queue {} holds about {} messages{kept}",
            self.name,
            messages(attributes)
        ))
    }
}

impl DeadLetterQueue {
    async fn ask(client: &Client, arn: &str) -> Self {
        // arn:aws:sqs:eu-west-1:123456789012:orders-dead
        let mut parts = arn.rsplit(':');
        let name = parts.next().unwrap_or(arn).to_owned();
        let account = parts.next().map(str::to_owned);
        let url = (client.get_queue_url())
            .queue_name(&name)
            .set_queue_owner_aws_account_id(account)
            .customize()
            .config_override(timeouts())
            .send()
            .await;
        let attributes = match url.map(|output| output.queue_url) {
            Ok(Some(url)) => attributes(client, &url).await,
            Ok(None) => Err("SQS does not tell its URL".to_owned()),
            Err(error) => Err(reason(&error, "sqs:GetQueueUrl")),
        };
        Self { name, attributes }
    }

    /// A message that is moved keeps the time of its sending on a standard queue, and is given a new
    /// one on a FIFO queue. One that is sent back to its source is a new message either way.
    fn reach(&self, path: &str, queue_keeps: Duration, is_fifo: bool) -> Reach {
        let path = format!("{path}, redriven");
        let kept = match &self.attributes {
            Ok(attributes) => retention(attributes),
            Err(reason) => {
                return Reach::unknown(path, format!("dead-letter queue {}: {reason}", self.name));
            }
        };
        let Some(kept) = kept else {
            let why = format!(
                "SQS does not tell the MessageRetentionPeriod of {}",
                self.name
            );
            return Reach::unknown(path, why);
        };
        let (in_queue, in_dead_letters) = (Span(queue_keeps), Span(kept));
        let name = &self.name;
        if is_fifo {
            Reach::lasting(
                path,
                (kept + queue_keeps).saturating_add(queue_keeps),
                format!(
                    "{in_queue} + dead-letter queue {name} {in_dead_letters} + {in_queue} again"
                ),
            )
        } else {
            Reach::lasting(
                path,
                kept + queue_keeps,
                format!(
                    "dead-letter queue {name} {in_dead_letters}, from the sending on, + {in_queue} again"
                ),
            )
        }
    }

    fn examine(&self) -> Option<Finding> {
        let attributes = match &self.attributes {
            Ok(attributes) => attributes,
            Err(reason) => {
                return Some(Finding::warning(
                    format!("dead-letter queue {} is not known: {reason}", self.name),
                    "for how long it may bring duplicates was not checked",
                    "allow sqs:GetQueueUrl and sqs:GetQueueAttributes on it",
                ));
            }
        };
        let messages = messages(attributes);
        if messages == 0 {
            return None;
        }
        Some(Finding::warning(
            format!(
                "dead-letter queue {} holds about {messages} messages",
                self.name
            ),
            "SQS moved them after too many receives, whether their effect is there or not: the \
             inbox will tell them apart, for as long as it remembers them",
            format!(
                "redrive them within {}",
                retention(attributes).map_or_else(
                    || "their retention".to_owned(),
                    |kept| Span(kept).to_string(),
                )
            ),
        ))
    }
}

/// The consumer sets events aside itself, with their reason; SQS moving them first takes that away.
fn redrive_policy(policy: &str, attempt_limit: u32) -> Finding {
    let needed = attempt_limit.saturating_add(SPARE_RECEIVES);
    match open::max_receive_count(policy) {
        Some(count) if count < needed => Finding::warning(
            format!("maxReceiveCount is {count}"),
            format!(
                "the consumer tries {attempt_limit} times, and stops, releases and lost answers \
                 use up receives as well: SQS may take events away before they were tried often \
                 enough"
            ),
            format!("raise it to {needed} or more"),
        ),
        Some(count) => Finding::ok(format!("maxReceiveCount is {count}")),
        None => Finding::warning(
            format!("the redrive policy cannot be read: {policy}"),
            "whether SQS takes events away too early was not checked",
            "set it again",
        ),
    }
}

async fn attributes(client: &Client, queue_url: &str) -> Attributes {
    let answer = (client.get_queue_attributes())
        .queue_url(queue_url)
        .attribute_names(Name::All)
        .customize()
        .config_override(timeouts())
        .send()
        .await;
    match answer {
        Ok(output) => Ok(output.attributes.unwrap_or_default()),
        Err(error) => Err(reason(&error, "sqs:GetQueueAttributes")),
    }
}

fn timeouts() -> aws_sdk_sqs::config::Builder {
    aws_sdk_sqs::config::Config::builder()
        .timeout_config(TimeoutConfig::builder().operation_timeout(TIMEOUT).build())
}

fn reason<E>(error: &SdkError<E>, right: &str) -> String
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    if is_denied(error.code()) {
        format!("not allowed: {right}")
    } else {
        DisplayErrorContext(error).to_string()
    }
}

fn retention(attributes: &HashMap<Name, String>) -> Option<Duration> {
    let seconds = attributes
        .get(&Name::MessageRetentionPeriod)?
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// In the queue, held by somebody, or delayed; SQS itself only knows about how many.
fn messages(attributes: &HashMap<Name, String>) -> u64 {
    let count = |name| attributes.get(&name)?.parse::<u64>().ok();
    let counts = [
        Name::ApproximateNumberOfMessages,
        Name::ApproximateNumberOfMessagesNotVisible,
        Name::ApproximateNumberOfMessagesDelayed,
    ];
    counts.into_iter().filter_map(count).sum()
}

fn dead_letter_arn(policy: &str) -> Option<String> {
    let policy: serde_json::Value = serde_json::from_str(policy).ok()?;
    Some(policy.get("deadLetterTargetArn")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use oneffect_core::{Level, Longest};

    const DAY: u64 = 24 * 60 * 60;

    fn kept(days: u64) -> HashMap<Name, String> {
        let retention = (days * DAY).to_string();
        HashMap::from([(Name::MessageRetentionPeriod, retention)])
    }

    fn queues(name: &str, queue: u64, dead_letters: Attributes) -> Queues {
        let mut attributes = kept(queue);
        let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:r:1:dead","maxReceiveCount":24}"#;
        attributes.insert(Name::RedrivePolicy, policy.to_owned());
        Queues {
            name: name.to_owned(),
            attributes: Ok(attributes),
            dead_letters: Some(DeadLetterQueue {
                name: "dead".to_owned(),
                attributes: dead_letters,
            }),
        }
    }

    fn days(reach: &Reach) -> f64 {
        match reach.longest {
            Longest::For(length) => length.as_secs_f64() / Duration::from_secs(DAY).as_secs_f64(),
            Longest::Unlimited | Longest::Unknown | _ => panic!("{reach:?}"),
        }
    }

    /// Field case 080.
    #[test]
    fn a_message_that_is_redriven_has_its_time_in_the_queue_once_more() {
        let minute = Duration::from_mins(1);
        for (name, expected) in [("orders", 18.0), ("orders.fifo", 22.0)] {
            let reaches = queues(name, 4, Ok(kept(14))).reaches(minute);
            let lengths: Vec<f64> = reaches.iter().map(days).collect();
            assert_eq!(lengths, [4.0, 24.0 / 1440.0, expected], "{name}");
            assert_eq!(reaches[2].path, format!("queue {name}, redriven"));
        }
    }

    #[test]
    fn what_sqs_refuses_to_tell_is_unknown_and_a_warning() {
        let denied = || Err("not allowed: sqs:GetQueueAttributes".to_owned());
        let half = queues("orders", 4, denied());
        let reaches = half.reaches(Duration::from_secs(30));
        assert_eq!(reaches[2].longest, Longest::Unknown);
        let warned = half.examine(14);
        assert_eq!(
            warned.last().map(|finding| finding.level),
            Some(Level::Warning)
        );
        let none = Queues {
            attributes: denied(),
            dead_letters: None,
            ..half
        };
        assert_eq!(none.reaches(Duration::ZERO)[0].longest, Longest::Unknown);
        assert_eq!(none.examine(14)[0].level, Level::Warning);
    }

    #[test]
    fn receives_must_exceed_the_attempts() {
        for (policy, level) in [
            (r#"{"maxReceiveCount":23}"#, Level::Warning),
            (r#"{"maxReceiveCount":"24"}"#, Level::Ok),
            ("{}", Level::Warning),
        ] {
            assert_eq!(redrive_policy(policy, 14).level, level, "{policy}");
        }
    }
}
