//! The SQS source on a real queue (LocalStack's, or any that `SQS_ENDPOINT` names).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use oneffect_core::{Delivery, Order, Settle, Settlement, Source, SourceError, SourceEvent};
use oneffect_sqs::{ENCODING_ATTRIBUTE, Sqs, SqsConfig, encode_body};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// After this a test has failed; nothing here takes as long.
const GIVE_UP: Duration = Duration::from_mins(1);

/// A queue of the test's own.
struct TestQueue {
    client: Client,
    endpoint: String,
    url: String,
}

impl TestQueue {
    /// `None`: there is no service, and the test is skipped.
    async fn standard(name: &str) -> Option<Self> {
        Self::create(name.to_owned(), BTreeMap::new()).await
    }

    async fn fifo(name: &str) -> Option<Self> {
        let fifo = [(QueueAttributeName::FifoQueue, "true")];
        Self::create(format!("{name}.fifo"), fifo.into()).await
    }

    async fn create(name: String, attributes: BTreeMap<QueueAttributeName, &str>) -> Option<Self> {
        let Ok(endpoint) = std::env::var("SQS_ENDPOINT") else {
            assert!(
                std::env::var_os("CI").is_none(),
                "SQS_ENDPOINT is not set, and CI must not skip what needs it"
            );
            println!("skipped: SQS_ENDPOINT is not set");
            return None;
        };
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::for_tests())
            .endpoint_url(&endpoint)
            .http_client(aws_smithy_http_client::Builder::new().build_http());
        let client = Client::from_conf(config.build());
        // Names of deleted queues stay taken for a minute.
        let unique = uuid::Uuid::now_v7().simple();
        let created = (client.create_queue())
            .queue_name(format!("{unique}-{name}"))
            .set_attributes(Some(
                attributes
                    .into_iter()
                    .map(|(k, v)| (k, v.to_owned()))
                    .collect(),
            ))
            .send()
            .await
            .unwrap();
        Some(Self {
            client,
            endpoint,
            url: created.queue_url.unwrap(),
        })
    }

    async fn send(&self, bodies: &[String], group: Option<&str>) {
        for chunk in bodies.chunks(10) {
            let entries = chunk.iter().enumerate().map(|(at, body)| {
                SendMessageBatchRequestEntry::builder()
                    .id(at.to_string())
                    .message_body(body)
                    .set_message_group_id(group.map(str::to_owned))
                    .set_message_deduplication_id(group.map(|_| body.clone()))
                    .build()
                    .unwrap()
            });
            let sent = (self.client.send_message_batch())
                .queue_url(&self.url)
                .set_entries(Some(entries.collect()))
                .send()
                .await
                .unwrap();
            assert!(sent.failed.is_empty(), "{:?}", sent.failed);
        }
    }

    /// How many messages there are: visible, and hidden.
    async fn counts(&self) -> (u32, u32) {
        let output = (self.client.get_queue_attributes())
            .queue_url(&self.url)
            .attribute_names(QueueAttributeName::All)
            .send()
            .await
            .unwrap();
        let attributes = output.attributes.unwrap();
        let count = |name| attributes[&name].parse().unwrap();
        (
            count(QueueAttributeName::ApproximateNumberOfMessages),
            count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible),
        )
    }

    async fn open(&self, config: SqsConfig) -> Box<Sqs> {
        self.open_through(&self.endpoint, config).await
    }

    async fn open_through(&self, endpoint: &str, config: SqsConfig) -> Box<Sqs> {
        let mut source = Box::new(Sqs::new(&self.url).endpoint(endpoint).config(config));
        source.open().await.unwrap();
        let first = source.next().await.unwrap();
        assert!(matches!(first, SourceEvent::Assigned(_)), "{first:?}");
        source
    }
}

fn quick() -> SqsConfig {
    SqsConfig::default()
        .wait_time(Duration::from_secs(1))
        .visibility(Duration::from_secs(2))
}

async fn receive(source: &mut Sqs, count: usize) -> Vec<Delivery> {
    let mut received = Vec::new();
    let all = async {
        while received.len() < count {
            if let SourceEvent::Deliveries(deliveries) = source.next().await.unwrap() {
                received.extend(deliveries);
            }
        }
    };
    let in_time = timeout(GIVE_UP, all).await;
    assert!(in_time.is_ok(), "{} of {count} received", received.len());
    received
}

/// What the source says within this time.
async fn listen(source: &mut Sqs, time: Duration) -> Vec<SourceEvent> {
    let mut events = Vec::new();
    let until = tokio::time::Instant::now() + time;
    while let Ok(event) = tokio::time::timeout_at(until, source.next()).await {
        events.push(event.unwrap());
    }
    events
}

fn all(deliveries: &[Delivery], settle: Settle) -> Vec<Settlement> {
    let settlements = deliveries.iter().map(|delivery| Settlement {
        assignment: delivery.assignment,
        tag: delivery.tag,
        settle,
    });
    settlements.collect()
}

fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    let payloads = deliveries.iter().map(|d| d.payload.clone().unwrap());
    payloads
        .map(|payload| String::from_utf8(payload.to_vec()).unwrap())
        .collect()
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n:04}")).collect()
}

#[tokio::test]
async fn a_message_arrives_as_it_was_sent_and_is_gone_when_acknowledged() {
    let Some(queue) = TestQueue::standard("arrives").await else {
        return;
    };
    let attribute = |kind| MessageAttributeValue::builder().data_type(kind);
    let text = attribute("String").string_value("caf\u{e9}");
    let binary = attribute("Binary").binary_value(Blob::new([0, 255]));
    (queue.client.send_message())
        .queue_url(&queue.url)
        .message_body("{\"id\":1}")
        .message_attributes("text", text.build().unwrap())
        .message_attributes("binary", binary.build().unwrap())
        .send()
        .await
        .unwrap();

    let mut source = queue.open(quick()).await;
    let received = receive(&mut source, 1).await;
    source.settle(&all(&received, Settle::Ack));
    source.close(GIVE_UP).await.unwrap();

    let delivery = &received[0];
    assert_eq!(delivery.payload.as_deref(), Some(&b"{\"id\":1}"[..]));
    assert_eq!(
        delivery.headers.get("text").unwrap(),
        "caf\u{e9}".as_bytes()
    );
    assert_eq!(delivery.headers.get("binary").unwrap(), &[0, 255][..]);
    assert_eq!(
        (&delivery.order, delivery.receive_count),
        (&Order::None, Some(1))
    );
    assert!(delivery.published_at.is_some());
    assert_eq!(queue.counts().await, (0, 0));
}

/// Field case 077.
#[tokio::test]
async fn bytes_that_sqs_refuses_arrive_by_way_of_base64() {
    let Some(queue) = TestQueue::standard("bytes").await else {
        return;
    };
    let payloads: [&[u8]; 4] = [
        b"",
        &[0, 1, 2, 0x1f],
        "\u{fffe}".as_bytes(),
        b"{\"plain\":1}",
    ];
    for payload in payloads {
        let body = encode_body(payload);
        let mark = body.encoding.map(|encoding| {
            let mark = MessageAttributeValue::builder().data_type("String");
            (
                ENCODING_ATTRIBUTE.to_owned(),
                mark.string_value(encoding).build().unwrap(),
            )
        });
        (queue.client.send_message())
            .queue_url(&queue.url)
            .message_body(body.text)
            .set_message_attributes(Some(mark.into_iter().collect()))
            .send()
            .await
            .unwrap();
    }

    let mut source = queue.open(quick()).await;
    let received = receive(&mut source, payloads.len()).await;

    let received: BTreeSet<_> = received
        .iter()
        .map(|d| d.payload.clone().unwrap())
        .collect();
    let sent = payloads.iter().map(|payload| payload.to_vec().into());
    assert_eq!(received, sent.collect());
}

#[tokio::test]
async fn a_released_message_comes_again_not_before_its_time() {
    let Some(queue) = TestQueue::standard("released").await else {
        return;
    };
    queue.send(&numbered("m", 1), None).await;
    let mut source = queue.open(quick()).await;
    let first = receive(&mut source, 1).await;
    let released_at = std::time::Instant::now();

    source.settle(&all(&first, Settle::Release(Duration::from_secs(3))));
    let second = receive(&mut source, 1).await;
    let waited = released_at.elapsed();
    source.settle(&all(&second, Settle::Ack));
    source.close(GIVE_UP).await.unwrap();

    assert_eq!(second[0].receive_count, Some(2));
    assert!(waited >= Duration::from_secs(3), "{waited:?}");
    assert_eq!(queue.counts().await, (0, 0));
}

/// Field case 053: a rival receives on the same queue all the while.
#[tokio::test]
async fn what_is_held_is_not_delivered_to_others_however_long_it_takes() {
    let Some(queue) = TestQueue::standard("held").await else {
        return;
    };
    queue.send(&numbered("m", 20), None).await;
    let mut source = queue.open(quick()).await;
    let received = receive(&mut source, 20).await;
    let mut rival = queue.open(quick()).await;

    // Three times the visibility.
    let stolen = listen(&mut rival, Duration::from_secs(6)).await;
    source.settle(&all(&received, Settle::Ack));
    source.close(GIVE_UP).await.unwrap();

    assert!(stolen.is_empty(), "{stolen:?}");
    assert!(
        received
            .iter()
            .all(|delivery| delivery.receive_count == Some(1))
    );
    assert_eq!(queue.counts().await, (0, 0));
}

#[tokio::test]
async fn what_a_dead_process_held_is_delivered_to_another() {
    let Some(queue) = TestQueue::standard("dead").await else {
        return;
    };
    queue.send(&numbered("m", 5), None).await;
    let mut dies = queue.open(quick()).await;
    receive(&mut dies, 5).await;

    drop(dies);
    let mut heir = queue.open(quick()).await;
    let received = receive(&mut heir, 5).await;

    let received: BTreeSet<_> = bodies(&received).into_iter().collect();
    assert_eq!(received, numbered("m", 5).into_iter().collect());
}

/// Field cases 043, 071 and 072: rolling restarts in the middle of a stream.
#[tokio::test]
async fn restarts_lose_nothing_hide_nothing_and_repeat_nothing_that_was_acknowledged() {
    let Some(queue) = TestQueue::standard("restarts").await else {
        return;
    };
    let sent = numbered("m", 200);
    queue.send(&sent, None).await;
    let config = quick().visibility(Duration::from_mins(5));
    let mut acknowledged = Vec::new();

    while acknowledged.len() < sent.len() {
        let mut source = queue.open(config.clone()).await;
        let left = sent.len() - acknowledged.len();
        let received = receive(&mut source, left.min(30)).await;
        let done = &received[..received.len().min(25)];
        source.settle(&all(done, Settle::Ack));
        acknowledged.extend(bodies(done));
        source.stop_receiving();
        source.close(GIVE_UP).await.unwrap();

        let (visible, hidden) = queue.counts().await;
        assert_eq!(hidden, 0);
        assert_eq!(visible as usize, sent.len() - acknowledged.len());
    }

    acknowledged.sort_unstable();
    assert_eq!(acknowledged, sent);
}

#[tokio::test]
async fn a_backlog_is_received_by_many_pollers_and_each_message_once() {
    let Some(queue) = TestQueue::standard("backlog").await else {
        return;
    };
    let sent = numbered("m", 500);
    queue.send(&sent, None).await;
    let mut source = queue
        .open(quick().visibility(Duration::from_secs(30)))
        .await;
    let mut received = Vec::new();

    while received.len() < sent.len() {
        let batch = receive(&mut source, 1).await;
        source.settle(&all(&batch, Settle::Ack));
        received.extend(bodies(&batch));
    }
    source.close(GIVE_UP).await.unwrap();

    received.sort_unstable();
    assert_eq!(received, sent);
    assert_eq!(queue.counts().await, (0, 0));
}

#[tokio::test]
async fn a_group_of_a_fifo_queue_comes_in_its_order() {
    let Some(queue) = TestQueue::fifo("ordered").await else {
        return;
    };
    let (a, b) = (numbered("a", 15), numbered("b", 15));
    queue.send(&a, Some("a")).await;
    queue.send(&b, Some("b")).await;
    let mut source = queue
        .open(quick().visibility(Duration::from_secs(30)))
        .await;
    let mut received = Vec::new();

    while received.len() < a.len() + b.len() {
        let batch = receive(&mut source, 1).await;
        source.settle(&all(&batch, Settle::Ack));
        received.extend(batch);
    }
    source.close(GIVE_UP).await.unwrap();

    for (group, sent) in [("a", a), ("b", b)] {
        let order = Order::Group(group.into());
        let of_group: Vec<_> = (received.iter())
            .filter(|delivery| delivery.order == order)
            .cloned()
            .collect();
        assert_eq!(bodies(&of_group), sent);
    }
    assert!(
        received
            .iter()
            .all(|delivery| delivery.deduplication_id.is_some())
    );
    assert_eq!(queue.counts().await, (0, 0));
}

/// Field cases 063 and 065: the source's part of them.
#[tokio::test]
async fn a_group_that_is_released_comes_again_in_its_order() {
    let Some(queue) = TestQueue::fifo("released").await else {
        return;
    };
    let sent = numbered("m", 5);
    queue.send(&sent, Some("g")).await;
    let mut source = queue.open(quick()).await;
    let first = receive(&mut source, 5).await;

    source.settle(&all(&first[..1], Settle::Ack));
    source.settle(&all(&first[1..], Settle::Release(Duration::from_secs(2))));
    let again = receive(&mut source, 4).await;
    source.settle(&all(&again, Settle::Ack));
    source.close(GIVE_UP).await.unwrap();

    assert_eq!(bodies(&again), sent[1..]);
    assert_eq!(queue.counts().await, (0, 0));
}

#[tokio::test]
async fn a_queue_that_does_not_exist_is_named() {
    let Some(queue) = TestQueue::standard("exists").await else {
        return;
    };
    let missing = format!("{}-not", queue.url);

    let opened = Sqs::new(&missing).endpoint(&queue.endpoint).open().await;

    let Err(error @ SourceError::Misconfigured { .. }) = opened else {
        panic!("{opened:?}");
    };
    assert!(error.to_string().contains(&missing), "{error}");
}

/// Field case 068.
#[tokio::test]
async fn a_black_hole_on_the_way_ends_when_the_network_heals() {
    let Some(queue) = TestQueue::standard("hole").await else {
        return;
    };
    let proxy = Proxy::start(&queue.endpoint).await;
    let mut source = queue.open_through(&proxy.url, quick()).await;
    queue.send(&numbered("before", 1), None).await;
    let before = receive(&mut source, 1).await;
    source.settle(&all(&before, Settle::Ack));

    proxy.swallow(true);
    queue.send(&numbered("m", 10), None).await;
    let said = timeout(GIVE_UP, source.next()).await.unwrap().unwrap();
    proxy.swallow(false);
    let mut after = BTreeSet::new();
    while after.len() < 10 {
        let batch = receive(&mut source, 1).await;
        source.settle(&all(&batch, Settle::Ack));
        after.extend(
            bodies(&batch)
                .into_iter()
                .filter(|body| body.starts_with('m')),
        );
    }
    source.close(GIVE_UP).await.unwrap();

    assert!(matches!(said, SourceEvent::Connected(false)), "{said:?}");
    assert_eq!(queue.counts().await, (0, 0));
}

/// Forwards connections, or swallows what they carry without a word.
struct Proxy {
    url: String,
    swallows: Arc<AtomicBool>,
    _task: JoinSet<()>,
}

impl Proxy {
    async fn start(endpoint: &str) -> Self {
        let upstream = endpoint.rsplit('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let swallows = Arc::new(AtomicBool::new(false));
        let mut task = JoinSet::new();
        task.spawn(serve(listener, upstream, Arc::clone(&swallows)));
        Self {
            url,
            swallows,
            _task: task,
        }
    }

    fn swallow(&self, swallows: bool) {
        self.swallows.store(swallows, Ordering::SeqCst);
    }
}

async fn serve(listener: TcpListener, upstream: String, swallows: Arc<AtomicBool>) {
    let mut connections = JoinSet::new();
    loop {
        let (here, _) = listener.accept().await.unwrap();
        let there = TcpStream::connect(&upstream).await.unwrap();
        let (here_read, here_write) = here.into_split();
        let (there_read, there_write) = there.into_split();
        connections.spawn(forward(here_read, there_write, Arc::clone(&swallows)));
        connections.spawn(forward(there_read, here_write, Arc::clone(&swallows)));
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallows: Arc<AtomicBool>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) if swallows.load(Ordering::SeqCst) => {}
            Ok(count) => {
                if to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
