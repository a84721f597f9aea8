//! What happens before the first receive: finding the client, and looking at the queue.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_sqs::operation::get_queue_attributes::GetQueueAttributesError;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_http_client::tls;
use oneffect_core::SourceError;
use tracing::warn;

use crate::api::CallErrorKind;
use crate::config::SqsConfig;

/// By how much the redrive policy has to exceed the consumer's attempts: stops, releases and lost
/// answers use up receives that are no attempt.
pub(crate) const SPARE_RECEIVES: u32 = 10;

/// A client set up the ordinary way: from the environment, the profile and the instance.
pub(crate) async fn load_client(queue_url: &str, endpoint: Option<&str>) -> Client {
    // Ring, for it builds with a C compiler alone.
    let https = aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(
            tls::rustls_provider::CryptoMode::Ring,
        ))
        .build_https();
    let loader = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(https);
    let sdk = loader.load().await;
    let mut config = aws_sdk_sqs::config::Builder::from(&sdk);
    // The queue is where its URL says. The SDK would ask the environment's region for it, and be
    // told that it does not exist.
    if let Some(region) = region_of(queue_url) {
        config = config.region(Region::new(region.to_owned()));
    }
    if let Some(endpoint) = endpoint {
        config = config.endpoint_url(endpoint);
    }
    Client::from_conf(config.build())
}

/// The region in an URL of AWS: `https://sqs.eu-west-1.amazonaws.com/1234/orders`.
fn region_of(queue_url: &str) -> Option<&str> {
    let (_, rest) = queue_url.split_once("://")?;
    let (host, _) = rest.split_once('/')?;
    let host =
        (host.strip_suffix(".amazonaws.com")).or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
    match host.split_once('.')? {
        // The second is the old way: `https://eu-west-1.queue.amazonaws.com/1234/orders`.
        ("sqs", region) | (region, "queue") => Some(region),
        _ => None,
    }
}

/// The queue's name: the end of its URL.
pub(crate) fn queue_name(queue_url: &str) -> Result<&str, SourceError> {
    let name = queue_url
        .split_once("://")
        .filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
        .and_then(|(_, rest)| rest.split_once('/'))
        .and_then(|(_, path)| path.rsplit('/').next())
        .filter(|name| !name.is_empty());
    name.ok_or_else(|| {
        SourceError::misconfigured(format!(
            "{queue_url:?} is no queue URL; one looks like https://sqs.eu-west-1.amazonaws.com/123456789012/orders (`aws sqs get-queue-url --queue-name orders` prints it)"
        ))
    })
}

/// Whether the queue is first in, first out: AWS has their names, and no others, end like this.
pub(crate) fn is_fifo(queue_name: &str) -> bool {
    queue_name
        .rsplit_once('.')
        .is_some_and(|(_, suffix)| suffix == "fifo")
}

/// Finds out whether the queue is there, and whether its settings suit.
pub(crate) async fn check_queue(
    client: &Client,
    queue_url: &str,
    endpoint: Option<&str>,
    config: &SqsConfig,
) -> Result<(), SourceError> {
    let answer = (client.get_queue_attributes())
        .queue_url(queue_url)
        .attribute_names(QueueAttributeName::All)
        .send()
        .await;
    let attributes = match answer {
        Ok(output) => output.attributes.unwrap_or_default(),
        Err(error) if is_denied(error.code()) => {
            warn!(
                queue_url,
                error = %DisplayErrorContext(&error),
                "may not read the queue's attributes (sqs:GetQueueAttributes), so its redrive policy is not checked"
            );
            return Ok(());
        }
        Err(error) => {
            let region = client.config().region().map_or("none", AsRef::as_ref);
            let endpoint = endpoint.unwrap_or("the environment's or AWS's own");
            let place = format!("queue {queue_url} (region: {region}, endpoint: {endpoint})");
            let failure = match CallErrorKind::of(&error) {
                CallErrorKind::Refused => {
                    let missing = (error.as_service_error())
                        .is_some_and(GetQueueAttributesError::is_queue_does_not_exist);
                    SourceError::misconfigured(if missing {
                        format!("there is no {place}; check URL, region, account and endpoint")
                    } else {
                        format!("SQS refuses to tell about {place}")
                    })
                }
                CallErrorKind::Unreachable | CallErrorKind::Throttled => {
                    SourceError::fatal(format!(
                        "cannot reach {place}; check network, credentials and region, or start again later"
                    ))
                }
            };
            return Err(failure.because(error));
        }
    };
    if let Some(policy) = attributes.get(&QueueAttributeName::RedrivePolicy) {
        check_redrive_policy(policy, queue_url, config);
    }
    Ok(())
}

pub(crate) fn is_denied(code: Option<&str>) -> bool {
    let code = code.and_then(|code| code.rsplit('.').next());
    matches!(code, Some("AccessDenied" | "AccessDeniedException"))
}

fn check_redrive_policy(policy: &str, queue_url: &str, config: &SqsConfig) {
    let needed = config.attempt_limit.saturating_add(SPARE_RECEIVES);
    match max_receive_count(policy) {
        Some(count) if count < needed => warn!(
            queue_url,
            max_receive_count = count,
            attempt_limit = config.attempt_limit,
            needed,
            "SQS may move messages to its dead-letter queue before the consumer has tried them often enough; raise maxReceiveCount"
        ),
        Some(_) => {}
        None => warn!(queue_url, policy, "cannot read the queue's redrive policy"),
    }
}

/// AWS gives a number; a policy that was set with a string gives that back.
pub(crate) fn max_receive_count(policy: &str) -> Option<u32> {
    let policy: serde_json::Value = serde_json::from_str(policy).ok()?;
    let count = policy.get("maxReceiveCount")?;
    match count.as_str() {
        Some(count) => count.parse().ok(),
        None => u32::try_from(count.as_u64()?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_read_from_urls_of_aws_only() {
        for (url, region) in [
            ("https://sqs.eu-west-1.amazonaws.com/1/q", Some("eu-west-1")),
            (
                "https://sqs.cn-north-1.amazonaws.com.cn/1/q",
                Some("cn-north-1"),
            ),
            (
                "https://us-east-2.queue.amazonaws.com/1/q",
                Some("us-east-2"),
            ),
            (
                "http://sqs.us-east-1.localhost.localstack.cloud:4566/0/q",
                None,
            ),
            (
                "https://vpce-1-2.sqs.us-east-1.vpce.amazonaws.com/1/q",
                None,
            ),
            ("http://127.0.0.1:9324/queue/q", None),
        ] {
            assert_eq!(region_of(url), region, "{url}");
        }
    }

    #[test]
    fn the_name_is_the_end_of_the_url() {
        assert_eq!(
            queue_name("http://localhost:1/000000000000/a.fifo").unwrap(),
            "a.fifo"
        );
        for wrong in [
            "",
            "orders",
            "https://host",
            "https://host/",
            "ftp://host/1/q",
        ] {
            assert!(
                matches!(queue_name(wrong), Err(SourceError::Misconfigured { .. })),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_receive_limit_may_be_a_number_or_a_string() {
        assert_eq!(max_receive_count(r#"{"maxReceiveCount":5}"#), Some(5));
        assert_eq!(max_receive_count(r#"{"maxReceiveCount":"5"}"#), Some(5));
        assert_eq!(max_receive_count("{}"), None);
    }
}
