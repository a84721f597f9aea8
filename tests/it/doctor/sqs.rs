//! SQS: retention, and the way through the dead-letter queue.

use std::time::Duration;

use aws_sdk_sqs::types::QueueAttributeName as Name;
use oneffect_core::{Level, Longest, Source, Window, doctor};
use oneffect_sqs::Sqs;

use super::finding;
use crate::sqs_stub::{Fault, Stub};
use crate::support::{service, sqs_client, unique};

const DAY: Duration = Duration::from_hours(24);

/// A queue of four days, whose dead-letter queue keeps messages for fourteen.
async fn queues(client: &aws_sdk_sqs::Client, suffix: &str, receives: u32) -> (String, String) {
    let fifo = !suffix.is_empty();
    let create = async |name: String, attributes: Vec<(Name, String)>| -> String {
        let mut create = client.create_queue().queue_name(name);
        for (name, value) in attributes {
            create = create.attributes(name, value);
        }
        if fifo {
            create = create.attributes(Name::FifoQueue, "true");
        }
        create.send().await.unwrap().queue_url.unwrap()
    };
    let retention = (Name::MessageRetentionPeriod, (14 * 86_400).to_string());
    let dead = create(format!("{}{suffix}", unique("dead")), vec![retention]).await;
    let arn = client.get_queue_attributes().queue_url(&dead);
    let arn = arn.attribute_names(Name::QueueArn).send().await.unwrap();
    let arn = &arn.attributes.unwrap()[&Name::QueueArn];
    let policy = format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":{receives}}}"#);
    let policy = (Name::RedrivePolicy, policy);
    let queue = create(format!("{}{suffix}", unique("orders")), vec![policy]).await;
    (queue, dead)
}

/// Field cases 080 and 123.
#[tokio::test]
async fn a_queue_and_its_dead_letter_queue_bring_duplicates_for_as_long_as_they_keep_messages() {
    let Some(endpoint) = service("SQS_ENDPOINT") else {
        return;
    };
    let client = sqs_client(&endpoint);
    for (suffix, days) in [("", 18), (".fifo", 22)] {
        let (queue, _) = queues(&client, suffix, 24).await;
        let mut source = Sqs::with_client(client.clone(), queue);
        let reaches = source.horizon().await;
        let longest: Vec<Longest> = reaches.iter().map(|reach| reach.longest).collect();
        let bouncing = Longest::For(Duration::from_mins(12));
        let expected = [Longest::For(DAY * 4), bouncing, Longest::For(DAY * days)];
        assert_eq!(longest, expected, "{reaches:#?}");
    }
}

#[tokio::test]
async fn what_waits_in_a_dead_letter_queue_and_too_few_receives_are_warnings() {
    let Some(endpoint) = service("SQS_ENDPOINT") else {
        return;
    };
    let client = sqs_client(&endpoint);
    let (queue, dead) = queues(&client, "", 3).await;
    let mut source = Sqs::with_client(client.clone(), queue);
    let findings = source.examine(Window::Days(8)).await;
    assert_eq!(
        finding(&findings, "maxReceiveCount is 3").level,
        Level::Warning
    );
    assert!(
        !findings
            .iter()
            .any(|finding| finding.what.starts_with("dead-letter queue"))
    );

    let send = client.send_message().queue_url(&dead).message_body("{}");
    send.send().await.unwrap();
    let findings = source.examine(Window::Days(8)).await;
    let waiting = finding(&findings, "holds about 1 messages");
    assert_eq!(waiting.level, Level::Warning, "{findings:#?}");
    assert!(waiting.to_do.contains("14 d"), "{waiting}");
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_may_not_be_asked_is_unknown_and_a_warning() {
    let stub = Stub::standard();
    stub.rule(|_| Fault::Refuse(403, "AccessDenied"));
    let mut source = Sqs::with_client(stub.client(), stub.url());

    let reaches = source.horizon().await;
    assert_eq!(reaches[0].longest, Longest::Unknown);
    assert!(
        reaches[0].found.contains("sqs:GetQueueAttributes"),
        "{reaches:#?}"
    );
    let findings = source.examine(Window::Days(8)).await;
    assert_eq!(doctor::worst(&findings), Level::Warning, "{findings:#?}");

    // And one that never answers is not waited for.
    stub.rule(|_| Fault::BlackHole);
    assert_eq!(source.horizon().await[0].longest, Longest::Unknown);
}
