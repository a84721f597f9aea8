//! What the tests share: a handler that does what its event says, and a consumer to run it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneffect_core::testing::{MemoryError, MemoryLog, MemoryRow, MemoryStore, Message};
use oneffect_core::{
    AllAtOnce, BatchContext, BatchHandler, BatchResult, Consumer, ConsumerConfig, Context, EventId,
    EventKey, Failure, Fresh, Handler, HandlerResult, Lanes, RunError, Settled, Source, Stats,
    StatsHandle, Store, all_done, done, each, reject,
};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// An event says itself what its handler does.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) event_id: String,
    /// What to do before the effect, by attempt: the last entry goes on for ever.
    #[serde(default)]
    pub(crate) script: Vec<Act>,
    /// Whether the effect is staged rather than written by a statement.
    #[serde(default)]
    pub(crate) staged: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// Has its effect.
    Go,
    /// Fails before it has taken the connection.
    Fail,
    /// Has its effect, then fails.
    FailLate,
    Panic,
    PanicLate,
    Reject,
    RejectLate,
    /// Runs a statement that fails, and says that all is well.
    Swallow,
    /// A database that is not ours is away.
    Elsewhere,
    /// Gets in the way of another transaction.
    Deadlock,
    /// Takes a second.
    Slow,
    /// Takes longer than any deadline.
    Hang,
    /// Commits by itself.
    Commit,
    /// Works until it is told to stop, and gives up then.
    UntilCancelled,
}

/// Runs the scripts, and writes down every time it is entered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted {
    entered: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    /// The ids in the order in which the handler was entered.
    pub(crate) fn entered(&self) -> Vec<String> {
        self.entered.lock().unwrap().clone()
    }

    /// Writes down that the handler is entered for an event.
    pub(crate) fn enter(&self, id: &str) {
        self.entered.lock().unwrap().push(id.into());
    }

    /// What the event does this time.
    fn act(&self, event: &Event) -> Act {
        let before = self.times(&event.event_id);
        self.enter(&event.event_id);
        let act = event.script.get(before).or(event.script.last());
        act.copied().unwrap_or(Act::Go)
    }

    /// N(id): how often the handler was entered for an event.
    pub(crate) fn times(&self, id: &str) -> usize {
        self.entered()
            .iter()
            .filter(|entered| *entered == id)
            .count()
    }
}

impl<S: Store<Connection = oneffect_core::testing::MemoryConnection, Row = MemoryRow>> Handler<S>
    for Scripted
{
    type Event = Event;

    async fn handle(&self, cx: &mut Context<'_, S>, event: Event) -> HandlerResult {
        let act = self.act(&event);
        match act {
            Act::Fail => return Err(Failure::new("not now")),
            Act::Panic => panic!("no way"),
            Act::Reject => return reject("never"),
            Act::Slow => tokio::time::sleep(Duration::from_secs(1)).await,
            Act::Hang => tokio::time::sleep(Duration::from_hours(1)).await,
            Act::UntilCancelled => {
                cx.cancelled().cancelled().await;
                return Err(Failure::new("told to stop"));
            }
            Act::Elsewhere => return Err(MemoryError::Unavailable.into()),
            _ => {}
        }
        if event.staged {
            cx.stage(MemoryRow::new("effect", event.event_id));
        } else {
            cx.db().await?.append("effect", event.event_id).await?;
        }
        match act {
            Act::FailLate => Err(Failure::new("not now")),
            Act::PanicLate => panic!("no way"),
            Act::RejectLate => reject("never"),
            Act::Swallow => {
                let bad = cx
                    .db()
                    .await?
                    .fail(MemoryError::BadValue("bad".into()))
                    .await;
                assert!(bad.is_err());
                done()
            }
            Act::Deadlock => {
                cx.db().await?.fail(MemoryError::Deadlock).await?;
                done()
            }
            Act::Commit => {
                cx.db().await?.end_with_commit().await?;
                done()
            }
            _ => done(),
        }
    }
}

/// Runs the scripts of a whole batch: all effects, then what else there is to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtOnce(pub(crate) Scripted);

impl<S: Store<Connection = oneffect_core::testing::MemoryConnection, Row = MemoryRow>>
    BatchHandler<S> for AtOnce
{
    type Event = Event;

    async fn handle(
        &self,
        cx: &mut BatchContext<'_, S>,
        events: Vec<Fresh<'_, Event>>,
    ) -> BatchResult {
        let acts: Vec<Act> = events.iter().map(|event| self.0.act(event)).collect();
        for (event, act) in events.iter().zip(&acts) {
            match act {
                Act::Fail | Act::Reject | Act::Elsewhere => continue,
                Act::Panic => panic!("no way"),
                Act::Slow => tokio::time::sleep(Duration::from_secs(1)).await,
                Act::Hang => tokio::time::sleep(Duration::from_hours(1)).await,
                _ => {}
            }
            if event.staged {
                cx.stage(event, MemoryRow::new("effect", &event.event_id));
            } else {
                cx.db().await?.append("effect", &event.event_id).await?;
            }
        }
        for act in &acts {
            match act {
                Act::PanicLate => panic!("no way"),
                Act::Swallow => {
                    let bad = MemoryError::BadValue("bad".into());
                    assert!(cx.db().await?.fail(bad).await.is_err());
                }
                Act::Deadlock => cx.db().await?.fail(MemoryError::Deadlock).await?,
                _ => {}
            }
        }
        if acts.iter().all(|act| *act == Act::Go) {
            return all_done();
        }
        each(acts.iter().map(|act| match act {
            Act::Fail | Act::FailLate => Err(Failure::new("not now")),
            Act::Elsewhere => Err(MemoryError::Unavailable.into()),
            Act::Reject | Act::RejectLate => reject("never"),
            _ => done(),
        }))
    }
}

/// An event that acts like this, once for each entry.
pub(crate) fn event(id: &str, script: &[&str]) -> Message {
    message(id, &serde_json::json!({ "event_id": id, "script": script }))
}

/// Where lanes are keys, each event has one of its own.
fn message(id: &str, json: &serde_json::Value) -> Message {
    let message = Message::new(json.to_string());
    match LANES.get() {
        Lanes::Key => message.key(id.to_owned()),
        _ => message,
    }
}

/// As [`event`], with an effect that is staged.
pub(crate) fn staged(id: &str, script: &[&str]) -> Message {
    let json = serde_json::json!({ "event_id": id, "script": script, "staged": true });
    message(id, &json)
}

/// The same with a record key of its partition; one of its keys is none.
pub(crate) fn of_key(mut message: Message, partition: i32, key: u32) -> Message {
    message.key = (key > 0).then(|| format!("{partition}/{key}").into());
    message
}

/// What the inbox says of most events.
pub(crate) const DONE: Settled = Settled::Done { reply: None };

pub(crate) fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).unwrap())
}

/// E(id) for every id that has effects, in a table without any unique constraint.
pub(crate) fn effects(store: &MemoryStore) -> BTreeMap<String, usize> {
    let mut effects = BTreeMap::new();
    for id in store.rows("effect") {
        *effects.entry(id).or_default() += 1;
    }
    effects
}

/// E(id) = 1 for all of these, and nothing else has an effect.
#[track_caller]
pub(crate) fn assert_once(store: &MemoryStore, ids: impl IntoIterator<Item = impl Into<String>>) {
    let expected: BTreeMap<String, usize> = ids.into_iter().map(|id| (id.into(), 1)).collect();
    assert_eq!(effects(store), expected);
}

#[track_caller]
pub(crate) fn assert_settled(store: &MemoryStore, id: &str, expected: Settled) {
    assert_eq!(store.outcome("test", &key(id)), Some(expected), "{id}");
}

/// Each lane's effects are in the order of its events: `p2k1-007` is of lane `p2k1`, `p2` or none.
#[track_caller]
pub(crate) fn assert_in_order(store: &MemoryStore) {
    let lane_of = |id: &str| match LANES.get() {
        Lanes::Partition => id.split(['k', '-']).next().map(str::to_owned),
        Lanes::Key => id.split('-').next().map(str::to_owned),
        _ => None,
    };
    let mut last = BTreeMap::new();
    for id in store.rows("effect") {
        let number = id.rsplit('-').next().unwrap().to_owned();
        let Some(lane) = lane_of(&id) else { return };
        let before = last.insert(lane, number.clone());
        assert!(before.is_none_or(|before| before < number), "{id} is late");
    }
}

thread_local! {
    /// What every consumer of the test that this thread runs has for lanes.
    static LANES: Cell<Lanes> = const { Cell::new(Lanes::Partition) };
}

/// A consumer that runs.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<Stats, RunError>>,
    pub(crate) stats: StatsHandle,
}

/// A consumer whose handler is called in either way.
pub(crate) trait Start {
    fn stats(&self) -> StatsHandle;
    fn go(
        self,
        lanes: Lanes,
        stopped: oneshot::Receiver<()>,
    ) -> JoinHandle<Result<Stats, RunError>>;
}

impl<Src: Source, S: Store, H: Handler<S>> Start for Consumer<Src, S, H> {
    fn stats(&self) -> StatsHandle {
        self.stats()
    }

    fn go(
        self,
        lanes: Lanes,
        stopped: oneshot::Receiver<()>,
    ) -> JoinHandle<Result<Stats, RunError>> {
        tokio::task::spawn_local(self.lanes(lanes).run(async {
            let _ = stopped.await;
        }))
    }
}

impl<Src: Source, S: Store, H: BatchHandler<S>> Start for Consumer<Src, S, H, AllAtOnce> {
    fn stats(&self) -> StatsHandle {
        self.stats()
    }

    fn go(
        self,
        lanes: Lanes,
        stopped: oneshot::Receiver<()>,
    ) -> JoinHandle<Result<Stats, RunError>> {
        tokio::task::spawn_local(self.lanes(lanes).run(async {
            let _ = stopped.await;
        }))
    }
}

/// Starts a consumer named `test`, as configured.
pub(crate) fn start(consumer: impl Start) -> Running {
    let stats = consumer.stats();
    let (stop, stopped) = oneshot::channel();
    Running {
        stop: Some(stop),
        task: consumer.go(LANES.get(), stopped),
        stats,
    }
}

/// Starts a consumer that calls the handler one by one or for whole batches.
pub(crate) fn start_either<S>(
    batches: bool,
    source: impl Source,
    store: S,
    handler: Scripted,
    config: ConsumerConfig,
) -> Running
where
    S: Store<Connection = oneffect_core::testing::MemoryConnection, Row = MemoryRow>,
{
    if batches {
        start(Consumer::batches("test", source, store, AtOnce(handler)).config(config))
    } else {
        start(Consumer::new("test", source, store, handler).config(config))
    }
}

impl Running {
    /// Stops it in good order, and checks that its numbers add up.
    pub(crate) async fn stop(mut self) -> Result<Stats, RunError> {
        let _ = self.stop.take().unwrap().send(());
        self.ended().await
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(self) -> Result<Stats, RunError> {
        let stats = self.stats.clone();
        let result = self.task.await.unwrap();
        let end = stats.snapshot();
        assert!(end.balanced(), "{end:?}");
        assert_eq!(end.in_flight, 0, "{end:?}");
        result
    }

    /// Ends it as `kill -9` does: nothing of it runs on.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Waits until something is true; the paused clock makes that cheap.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..200_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it never happened that {what}");
}

/// All that was produced is committed.
pub(crate) async fn until_drained(log: &MemoryLog, partitions: i32) {
    until("the log is drained", || {
        (0..partitions).all(|p| log.committed(p) == log.end(p))
    })
    .await;
}

/// Runs a test on one thread with these lanes.
pub(crate) async fn in_lanes<F: Future<Output = ()>>(lanes: Lanes, test: F) {
    LANES.set(lanes);
    eprintln!("lanes {lanes:?}");
    locally(test).await;
}

/// Runs a test, whose events do not depend on one another, with each kind of lanes.
pub(crate) async fn in_every_lane<F: Future<Output = ()>>(test: impl Fn() -> F) {
    for lanes in [Lanes::Partition, Lanes::Key, Lanes::Unordered] {
        LANES.set(lanes);
        in_lanes(lanes, test()).await;
    }
}

/// Runs a test on one thread.
pub(crate) async fn locally<F: Future<Output = ()>>(test: F) {
    tokio::task::LocalSet::new().run_until(test).await;
}
