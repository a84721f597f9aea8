//! The SQS source against rules and faults of the real service, on virtual time.

use std::time::Duration;

use oneffect_core::{Delivery, Order, Settle, Settlement, Source, SourceError, SourceEvent};
use oneffect_sqs::{Sqs, SqsConfig};
use tokio::time::{Instant, sleep, timeout};

use crate::sqs_stub::{Fault, Request, Stub};

const RECEIVE: &str = "ReceiveMessage";
const DELETE: &str = "DeleteMessageBatch";
const CHANGE: &str = "ChangeMessageVisibilityBatch";

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn open(stub: &Stub, config: SqsConfig) -> Box<Sqs> {
    let mut source = Box::new(Sqs::with_client(stub.client(), stub.url()).config(config));
    source.open().await.unwrap();
    let first = source.next().await.unwrap();
    assert!(matches!(first, SourceEvent::Assigned(assignments) if assignments.len() == 1));
    source
}

/// The next deliveries, until there are so many.
async fn receive(source: &mut Sqs, count: usize) -> Vec<Delivery> {
    let mut received = Vec::new();
    while received.len() < count {
        if let SourceEvent::Deliveries(deliveries) = source.next().await.unwrap() {
            received.extend(deliveries);
        }
    }
    received
}

/// What the source says within this time.
async fn listen(source: &mut Sqs, time: Duration) -> Vec<SourceEvent> {
    let mut events = Vec::new();
    let until = Instant::now() + time;
    while let Ok(event) = tokio::time::timeout_at(until, source.next()).await {
        events.push(event.unwrap());
    }
    events
}

fn all<'a>(deliveries: impl IntoIterator<Item = &'a Delivery>, settle: Settle) -> Vec<Settlement> {
    let settlements = deliveries.into_iter().map(|delivery| Settlement {
        assignment: delivery.assignment,
        tag: delivery.tag,
        settle,
    });
    settlements.collect()
}

/// A rule: this happens to all requests of one kind, and nothing to others.
fn only(action: &'static str, fault: Fault) -> impl FnMut(&Request) -> Fault {
    move |request| {
        if request.is(action) {
            return fault.clone();
        }
        Fault::None
    }
}

fn ids(deliveries: &[Delivery]) -> Vec<String> {
    let positions = deliveries.iter().map(|d| d.position.to_string());
    positions
        .map(|position| position.rsplit('/').next().unwrap().to_owned())
        .collect()
}

/// The handles in requests, in the order sent.
fn handles(requests: &[Request]) -> Vec<String> {
    let entries = requests.iter().flat_map(Request::entries);
    entries
        .map(|entry| entry["ReceiptHandle"].as_str().unwrap().to_owned())
        .collect()
}

/// Field case 043.
#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_is_deleted_before_the_source_has_closed() {
    let stub = Stub::standard();
    stub.send_many(None, 10);
    let mut source = open(&stub, SqsConfig::default()).await;
    let received = receive(&mut source, 10).await;
    stub.rule(only(DELETE, Fault::Delay(secs(2))));

    source.stop_receiving();
    source.settle(&all(&received, Settle::Ack));
    source.close(secs(8)).await.unwrap();

    assert_eq!(stub.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_could_not_settle_in_time_says_so() {
    let stub = Stub::standard();
    stub.send(None, "{}");
    let mut source = open(&stub, SqsConfig::default()).await;
    let received = receive(&mut source, 1).await;
    stub.rule(only(DELETE, Fault::BlackHole));

    source.settle(&all(&received, Settle::Ack));
    let closed = source.close(secs(2)).await;

    assert!(
        matches!(closed, Err(SourceError::Unclean { .. })),
        "{closed:?}"
    );
}

/// Field case 053: some are handed out, others wait in the source's own buffer.
#[tokio::test(start_paused = true)]
async fn what_nobody_handles_yet_stays_hidden() {
    let stub = Stub::standard();
    stub.send_many(None, 30);
    let mut source = open(&stub, SqsConfig::default().visibility(secs(5))).await;
    receive(&mut source, 10).await;

    sleep(secs(120)).await;

    assert!(
        stub.receives().iter().all(|count| *count == 1),
        "{:?}",
        stub.receives()
    );
}

/// Field case 055: the change of visibility is lost twice; were the message extended no longer, or
/// tried too late, it would show before its time.
#[tokio::test(start_paused = true)]
async fn a_release_that_gets_no_answer_is_repeated_before_the_message_shows() {
    let stub = Stub::standard();
    stub.send(None, "{}");
    let mut source = open(&stub, SqsConfig::default().visibility(secs(8))).await;
    let received = receive(&mut source, 1).await;
    let released_at = Instant::now();
    let mut lost = 0;
    stub.rule(move |request| {
        if request.is(CHANGE) && lost < 2 {
            lost += 1;
            return Fault::BlackHole;
        }
        Fault::None
    });

    source.settle(&all(&received, Settle::Release(secs(30))));
    let again = receive(&mut source, 1).await;

    assert_eq!(again[0].receive_count, Some(2));
    assert!(released_at.elapsed() >= secs(30));
    assert_eq!(stub.requests(CHANGE).len(), 3);
}

/// Field case 055: an extension that comes after the release would undo its delay.
#[tokio::test(start_paused = true)]
async fn a_slow_release_is_alone_on_its_way() {
    let stub = Stub::standard();
    stub.send(None, "{}");
    let mut source = open(&stub, SqsConfig::default().visibility(secs(40))).await;
    let received = receive(&mut source, 1).await;
    sleep(secs(15)).await;
    stub.rule(only(CHANGE, Fault::Delay(secs(9))));

    // Its extension is due while this is on its way.
    source.settle(&all(&received, Settle::Release(secs(300))));
    let released_at = Instant::now();
    receive(&mut source, 1).await;

    assert!(released_at.elapsed() >= secs(300));
    let timeouts: Vec<_> = stub
        .requests(CHANGE)
        .iter()
        .flat_map(Request::timeouts)
        .collect();
    assert_eq!(timeouts, [300]);
}

/// Field case 057.
#[tokio::test(start_paused = true)]
async fn a_handler_of_13_hours_ends_in_one_more_delivery_and_an_empty_queue() {
    let stub = Stub::standard();
    stub.send(None, "{}");
    let config = SqsConfig::default()
        .visibility(secs(3600))
        .wait_time(secs(20));
    let mut source = open(&stub, config).await;
    let first = receive(&mut source, 1).await;
    let start = Instant::now();

    let second = receive(&mut source, 1).await;
    let hidden = start.elapsed();
    sleep(secs(3600)).await;
    source.settle(&all(first.iter().chain(&second), Settle::Ack));
    source.close(secs(8)).await.unwrap();

    assert!(
        hidden > secs(11 * 3600) && hidden <= secs(12 * 3600),
        "{hidden:?}"
    );
    assert_eq!((stub.len(), second[0].receive_count), (0, Some(2)));
}

/// Field case 058.
#[tokio::test(start_paused = true)]
async fn an_expired_handle_of_a_fifo_queue_costs_one_more_delivery_and_no_order() {
    let stub = Stub::fifo();
    stub.send_many(Some("g"), 2);
    let mut source = open(&stub, SqsConfig::default().visibility(secs(2))).await;
    stub.rule(only(CHANGE, Fault::Refuse(403, "AccessDeniedException")));
    let first = receive(&mut source, 2).await;
    source.pause(first[0].assignment);
    listen(&mut source, secs(10)).await;

    source.settle(&all(&first[..1], Settle::Ack));
    sleep(secs(1)).await;
    let refused = stub.len();
    source.resume(first[0].assignment);
    let again = receive(&mut source, 2).await;
    stub.no_rule();
    source.settle(&all(&again, Settle::Ack));
    let closed = source.close(secs(8)).await;

    assert_eq!(refused, 2);
    assert!(closed.is_ok(), "{closed:?}");
    assert_eq!(ids(&again), ["m0", "m1"]);
    assert_eq!(again[0].order, Order::Group("g".into()));
    assert_eq!(stub.len(), 0);
}

/// Field case 060: the delete did not arrive, and the message shows again before the next try.
#[tokio::test(start_paused = true)]
async fn a_delete_is_repeated_with_the_newest_handle() {
    let stub = Stub::standard();
    stub.send(None, "{}");
    let mut source = open(&stub, SqsConfig::default().visibility(secs(1))).await;
    let first = receive(&mut source, 1).await;
    stub.rule(|request| {
        if request.is(RECEIVE) {
            return Fault::None;
        }
        Fault::BlackHole
    });
    source.settle(&all(&first, Settle::Ack));
    let second = receive(&mut source, 1).await;

    stub.no_rule();
    sleep(secs(10)).await;

    assert_eq!(handles(&stub.requests(DELETE)).last().unwrap(), "m0#2");
    assert_eq!(stub.len(), 0);
    source.settle(&all(&second, Settle::Ack));
    source.close(secs(8)).await.unwrap();
}

/// Field case 061.
#[tokio::test(start_paused = true)]
async fn a_message_received_twice_does_not_spoil_the_batch_of_its_delete() {
    let stub = Stub::standard();
    let slow = stub.send(None, "{}");
    stub.send_many(None, 8);
    let mut source = open(&stub, SqsConfig::default().visibility(secs(2))).await;
    stub.rule(only(
        CHANGE,
        Fault::FailEntries {
            message: slow,
            code: "ReceiptHandleIsInvalid",
            sender_fault: true,
        },
    ));
    let received = receive(&mut source, 10).await;

    source.settle(&all(&received, Settle::Ack));
    sleep(secs(1)).await;

    let deletes = stub.requests(DELETE);
    let mut messages: Vec<_> = handles(&deletes[..1]);
    messages.sort_unstable();
    messages.dedup();
    assert_eq!((deletes.len(), messages.len()), (1, 9));
    assert_eq!(stub.len(), 0);
}

/// Field case 062.
#[tokio::test(start_paused = true)]
async fn one_entry_that_always_fails_is_tried_alone_and_given_up() {
    let stub = Stub::standard();
    stub.send_many(None, 10);
    let mut source = open(&stub, SqsConfig::default().visibility(secs(120))).await;
    let received = receive(&mut source, 10).await;
    stub.rule(only(
        DELETE,
        Fault::FailEntries {
            message: "m3".to_owned(),
            code: "InternalError",
            sender_fault: false,
        },
    ));

    source.settle(&all(&received, Settle::Ack));
    sleep(secs(100)).await;
    let sent = handles(&stub.requests(DELETE));
    stub.send(None, "{}");
    let goes_on = receive(&mut source, 1).await;
    source.settle(&all(&goes_on, Settle::Ack));
    let closed = source.close(secs(8)).await;

    let of_culprit = sent.iter().filter(|handle| *handle == "m3#1").count();
    assert_eq!(sent.len() - of_culprit, 9);
    assert_eq!(of_culprit, 10);
    assert_eq!(stub.len(), 1);
    assert!(
        matches!(closed, Err(SourceError::Unclean { .. })),
        "{closed:?}"
    );
}

/// Field case 065.
#[tokio::test(start_paused = true)]
async fn a_group_that_is_released_together_comes_back_in_order() {
    let stub = Stub::fifo();
    stub.send_many(Some("g"), 3);
    let mut source = open(&stub, SqsConfig::default()).await;
    let received = receive(&mut source, 3).await;
    let start = Instant::now();

    let mut releases = all(&received[1..], Settle::Release(Duration::ZERO));
    releases.extend(all(&received[..1], Settle::Release(secs(40))));
    source.settle(&releases);
    let again = receive(&mut source, 3).await;

    let change = &stub.requests(CHANGE)[0];
    assert_eq!(
        handles(std::slice::from_ref(change)),
        ["m0#1", "m1#1", "m2#1"]
    );
    assert_eq!(change.timeouts(), [40, 40, 40]);
    assert_eq!(ids(&again), ["m0", "m1", "m2"]);
    assert!(start.elapsed() >= secs(40));
}

/// Field case 068, and the state that readiness shows.
#[tokio::test(start_paused = true)]
async fn a_connection_that_hangs_is_given_up_and_polling_goes_on_when_it_heals() {
    let stub = Stub::standard();
    let mut source = open(&stub, SqsConfig::default().wait_time(secs(20))).await;
    stub.rule(|_| Fault::BlackHole);
    let during = listen(&mut source, secs(120)).await;
    stub.no_rule();
    stub.send_many(None, 10);

    let healed_at = Instant::now();
    let after = source.next().await.unwrap();
    receive(&mut source, 10).await;

    assert!(
        matches!(during[..], [SourceEvent::Connected(false)]),
        "{during:?}"
    );
    assert!(matches!(after, SourceEvent::Connected(true)), "{after:?}");
    assert!(healed_at.elapsed() <= secs(60));
}

/// Field case 069.
#[tokio::test(start_paused = true)]
async fn an_idle_queue_is_asked_once_in_a_wait_time() {
    let stub = Stub::standard();
    let mut source = open(&stub, SqsConfig::default().wait_time(secs(20))).await;

    let said = listen(&mut source, secs(300)).await;

    assert!(said.is_empty(), "{said:?}");
    assert!((14..=20).contains(&stub.requests(RECEIVE).len()));
}

#[tokio::test(start_paused = true)]
async fn pollers_follow_the_queue() {
    let stub = Stub::standard();
    stub.send_many(None, 300);
    let mut source = open(
        &stub,
        SqsConfig::default().wait_time(secs(20)).max_pollers(4),
    )
    .await;
    stub.rule(only(RECEIVE, Fault::Delay(Duration::from_millis(100))));

    receive(&mut source, 300).await;
    let busy = stub.requests(RECEIVE);
    listen(&mut source, secs(60)).await;
    let before = stub.requests(RECEIVE).len();
    listen(&mut source, secs(200)).await;
    let idle = stub.requests(RECEIVE).len() - before;

    let at_a_time = |at: Instant| {
        let since = |request: &&Request| at.checked_duration_since(request.at);
        let around = busy
            .iter()
            .filter(|r| since(r).is_some_and(|d| d < Duration::from_millis(99)));
        around.count()
    };
    let most = busy.iter().map(|request| at_a_time(request.at)).max();
    assert_eq!(most, Some(4));
    assert!((9..=11).contains(&idle), "{idle}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_takes_nothing_is_sent_nothing_more() {
    let stub = Stub::standard();
    stub.send_many(None, 500);
    let mut source = open(&stub, SqsConfig::default().max_pollers(4)).await;
    receive(&mut source, 10).await;

    sleep(secs(60)).await;

    let received = stub.receives().iter().filter(|count| **count > 0).count();
    assert!(received <= 50, "{received}");
}

#[tokio::test(start_paused = true)]
async fn a_paused_source_hands_over_what_was_on_its_way_and_asks_for_nothing() {
    let stub = Stub::standard();
    stub.send(None, "{}");
    let mut source = open(&stub, SqsConfig::default()).await;
    let assignment = receive(&mut source, 1).await[0].assignment;
    sleep(Duration::from_millis(1)).await;

    source.pause(assignment);
    let asked = stub.requests(RECEIVE).len();
    stub.send(None, "{}");
    let on_its_way = receive(&mut source, 1).await;
    stub.send(None, "{}");
    let while_paused = listen(&mut source, secs(60)).await;
    let asked_while_paused = stub.requests(RECEIVE).len() - asked;
    source.resume(assignment);
    let resumed = receive(&mut source, 1).await;

    assert_eq!(ids(&on_its_way), ["m1"]);
    assert!(while_paused.is_empty(), "{while_paused:?}");
    assert_eq!(asked_while_paused, 0);
    assert_eq!(ids(&resumed), ["m2"]);
    // Nothing that is held shows again meanwhile.
    assert_eq!(stub.receives(), [1, 1, 1]);
}

/// Field cases 071 and 072: what shows again at the stop is taken by the poll that is still
/// outstanding, and has to be given back once more.
#[tokio::test(start_paused = true)]
async fn after_a_stop_nothing_is_received_for_long_and_everything_shows_again() {
    let stub = Stub::standard();
    stub.send_many(None, 5);
    let mut source = open(&stub, SqsConfig::default().visibility(secs(300))).await;
    let received = receive(&mut source, 5).await;
    sleep(Duration::from_millis(1)).await;

    source.stop_receiving();
    let asked = stub.requests(RECEIVE).len();
    source.settle(&all(&received, Settle::Release(Duration::ZERO)));
    let said = timeout(secs(1), source.next()).await;
    source.close(secs(8)).await.unwrap();

    assert!(said.is_err(), "{said:?}");
    assert_eq!(stub.requests(RECEIVE).len(), asked);
    assert_eq!((stub.len(), stub.visible()), (5, 5));
    assert_eq!(stub.receives(), [2; 5]);
}

/// Field case 071.
#[tokio::test(start_paused = true)]
async fn of_several_pollers_none_goes_on_after_a_stop() {
    let stub = Stub::standard();
    stub.send_many(None, 500);
    let mut source = open(&stub, SqsConfig::default()).await;
    // Their answers come one after the other.
    let mut millis = 0;
    stub.rule(move |request| {
        if request.is(RECEIVE) {
            millis = (millis + 17) % 100;
            return Fault::DelayAnswer(Duration::from_millis(100 + millis));
        }
        Fault::None
    });
    let handed_out = receive(&mut source, 100).await;
    let outstanding = 500 - handed_out.len() - stub.visible();
    assert!(outstanding > 0);

    source.stop_receiving();
    let asked = stub.requests(RECEIVE).len();
    sleep(secs(7)).await;

    assert_eq!(stub.requests(RECEIVE).len(), asked);
    assert_eq!(stub.visible(), 500 - handed_out.len());
}

/// Field case 071: what waits in the source's own buffer shows again while the runtime still
/// drains.
#[tokio::test(start_paused = true)]
async fn what_was_never_handed_out_shows_again_at_the_stop() {
    let stub = Stub::standard();
    stub.send_many(None, 500);
    let mut source = open(&stub, SqsConfig::default().visibility(secs(300))).await;
    stub.rule(only(
        RECEIVE,
        Fault::DelayAnswer(Duration::from_millis(100)),
    ));
    let handed_out = receive(&mut source, 100).await;
    sleep(Duration::from_millis(250)).await;

    source.stop_receiving();
    let asked = stub.requests(RECEIVE).len();
    sleep(secs(7)).await;
    let while_draining = stub.visible();
    source.settle(&all(&handed_out[..3], Settle::Ack));
    source.close(secs(8)).await.unwrap();

    assert_eq!(stub.requests(RECEIVE).len(), asked);
    assert_eq!(while_draining, 500 - handed_out.len());
    assert_eq!((stub.len(), stub.visible()), (497, 497));
}

#[tokio::test(start_paused = true)]
async fn what_a_receive_brings_while_the_source_closes_shows_again() {
    let stub = Stub::standard();
    stub.send_many(None, 10);
    stub.rule(only(RECEIVE, Fault::DelayAnswer(secs(3))));
    let source = open(&stub, SqsConfig::default().visibility(secs(300))).await;
    sleep(secs(1)).await;
    assert_eq!(stub.visible(), 0);

    source.close(secs(8)).await.unwrap();

    assert_eq!((stub.len(), stub.visible()), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn an_idle_source_closes_within_its_wait_time() {
    let stub = Stub::standard();
    let mut source = open(&stub, SqsConfig::default()).await;
    listen(&mut source, secs(12)).await;

    let start = Instant::now();
    source.close(secs(8)).await.unwrap();

    assert!(start.elapsed() <= secs(5));
}

/// Field case 082.
#[tokio::test(start_paused = true)]
async fn when_throttled_settlements_come_before_receives() {
    let stub = Stub::standard();
    stub.send_many(None, 30);
    let mut source = open(&stub, SqsConfig::default()).await;
    let received = receive(&mut source, 10).await;
    stub.rule(|request| {
        if request.is(RECEIVE) {
            return Fault::Refuse(400, "OverLimit");
        }
        Fault::Refuse(400, "RequestThrottled")
    });

    source.settle(&all(&received, Settle::Ack));
    let said = listen(&mut source, secs(5)).await;
    let (receives_before, deletes_before) =
        (stub.requests(RECEIVE).len(), stub.requests(DELETE).len());
    listen(&mut source, secs(115)).await;
    let more_receives = stub.requests(RECEIVE).len() - receives_before;
    let more_deletes = stub.requests(DELETE).len() - deletes_before;
    stub.no_rule();
    stub.send(None, "{}");
    let recovers_by = Instant::now() + secs(30);
    while stub.len() > 21 || stub.visible() > 0 {
        assert!(Instant::now() < recovers_by, "{} left", stub.len());
        listen(&mut source, secs(1)).await;
    }

    let disconnected = |event: &SourceEvent| matches!(event, SourceEvent::Connected(_));
    assert!(!said.iter().any(disconnected), "{said:?}");
    assert_eq!(more_receives, 0);
    assert!(more_deletes > 10);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_receive_whose_answer_was_lost_is_repeated_under_its_own_name() {
    let stub = Stub::fifo();
    stub.send_many(Some("g"), 3);
    let mut lost = false;
    stub.rule(move |request| {
        if request.is(RECEIVE) && !lost {
            lost = true;
            return Fault::LoseAnswer;
        }
        Fault::None
    });

    let mut source = open(&stub, SqsConfig::default().visibility(secs(300))).await;
    let received = receive(&mut source, 3).await;

    let attempts: Vec<_> = (stub.requests(RECEIVE).iter())
        .map(|request| request.body["ReceiveRequestAttemptId"].clone())
        .collect();
    assert!(attempts[0].is_string());
    assert_eq!(attempts[0], attempts[1]);
    assert_ne!(attempts.get(2), Some(&attempts[1]));
    assert_eq!(ids(&received), ["m0", "m1", "m2"]);
    assert_eq!(stub.receives(), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_while_a_delete_is_under_way_is_the_next_batch() {
    let stub = Stub::standard();
    stub.send_many(None, 13);
    let mut source = open(&stub, SqsConfig::default()).await;
    let received = receive(&mut source, 13).await;
    stub.rule(only(DELETE, Fault::Delay(secs(1))));

    for delivery in &received {
        source.settle(&all([delivery], Settle::Ack));
        sleep(Duration::from_millis(10)).await;
    }
    sleep(secs(5)).await;

    let sizes: Vec<_> = (stub.requests(DELETE).iter())
        .map(|request| request.entries().len())
        .collect();
    assert_eq!(sizes, [1, 10, 2]);
    assert_eq!(stub.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_future_of_next_loses_no_delivery() {
    let stub = Stub::standard();
    let mut source = open(&stub, SqsConfig::default()).await;
    let mut received = Vec::new();

    for n in 0..2_000 {
        if n % 7 == 0 && n < 700 {
            stub.send_many(None, 3);
        }
        if let Ok(event) = timeout(Duration::from_micros(n % 3), source.next()).await
            && let SourceEvent::Deliveries(deliveries) = event.unwrap()
        {
            received.extend(ids(&deliveries));
        }
    }

    received.sort_unstable();
    received.dedup();
    assert_eq!(received.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_source_makes_no_more_calls() {
    let stub = Stub::standard();
    stub.send_many(None, 20);
    let mut source = open(&stub, SqsConfig::default()).await;
    receive(&mut source, 10).await;

    drop(source);
    sleep(Duration::from_millis(1)).await;
    let calls = || stub.requests(RECEIVE).len() + stub.requests(CHANGE).len();
    let before = calls();
    sleep(secs(60)).await;

    assert_eq!(calls(), before);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_not_there_is_named() {
    let stub = Stub::standard();
    stub.rule(|_| Fault::Refuse(400, "QueueDoesNotExist"));

    let opened = Sqs::with_client(stub.client(), stub.url()).open().await;

    let Err(error @ SourceError::Misconfigured { .. }) = opened else {
        panic!("{opened:?}");
    };
    let text = error.to_string();
    assert!(
        text.contains(stub.url()) && text.contains("us-east-1"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_to_read_attributes_is_no_obstacle() {
    let stub = Stub::standard();
    stub.send(None, "{}");
    stub.rule(only(
        "GetQueueAttributes",
        Fault::Refuse(403, "AccessDeniedException"),
    ));

    let mut source = open(&stub, SqsConfig::default()).await;

    receive(&mut source, 1).await;
}

#[tokio::test]
async fn options_that_contradict_sqs_do_not_open() {
    let stub = Stub::standard();
    let config = SqsConfig::default().wait_time(secs(60));

    let opened = Sqs::with_client(stub.client(), stub.url())
        .config(config)
        .open()
        .await;

    assert!(
        matches!(opened, Err(SourceError::Misconfigured { .. })),
        "{opened:?}"
    );
}

#[test]
fn a_group_may_wait_in_memory_and_a_single_message_at_the_broker() {
    let queue = |name| {
        Sqs::new(format!(
            "https://sqs.us-east-1.amazonaws.com/000000000000/{name}"
        ))
    };

    let fifo = queue("q.fifo");
    assert_eq!(fifo.longest_hold(true), secs(60));
    assert_eq!(fifo.longest_hold(false), Duration::ZERO);
    // A standard queue has no groups: what is ordered in it, is so by chance.
    assert_eq!(queue("q").longest_hold(true), Duration::ZERO);
    assert_eq!(fifo.system(), "aws_sqs");
}
