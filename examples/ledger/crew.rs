//! The consumers: run, crashed, and started again.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use oneffect::{
    AssignmentId, Consumer, ConsumerConfig, Lanes, Reach, RunError, Settlement, Source,
    SourceError, SourceEvent, Stats, StatsHandle,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::books::Books;
use crate::broker::Broker;
use crate::handler::{Ledger, Style};

/// What every consumer of a crew is made of.
#[derive(Clone, Debug)]
pub(crate) struct Recipe<Br, B> {
    pub(crate) broker: Br,
    pub(crate) books: B,
    pub(crate) handler: Ledger,
    pub(crate) name: String,
    pub(crate) workers: usize,
    pub(crate) lanes: Lanes,
    pub(crate) batch: usize,
}

/// Consumers of one group.
#[derive(Debug)]
pub(crate) struct Crew {
    members: JoinSet<anyhow::Result<()>>,
    /// Orders a member to crash: its acknowledgements are lost from now on, and so long after it
    /// dies.
    crash: Vec<mpsc::Sender<Duration>>,
    stop: CancellationToken,
    numbers: mpsc::UnboundedReceiver<(usize, StatsHandle)>,
    /// Of all consumers there ever were, and whose place they took; the numbers of a crashed one stay.
    known: Vec<(usize, StatsHandle)>,
}

impl Crew {
    pub(crate) fn start<Br: Broker, B: Books>(size: usize, recipe: &Recipe<Br, B>) -> Self {
        let (tell_numbers, numbers) = mpsc::unbounded_channel();
        let mut crew = Self {
            members: JoinSet::new(),
            crash: Vec::new(),
            stop: CancellationToken::new(),
            numbers,
            known: Vec::new(),
        };
        for place in 0..size {
            let (crash, crashes) = mpsc::channel(1);
            crew.crash.push(crash);
            let member = Member {
                place,
                recipe: recipe.clone(),
                crashes,
                stop: crew.stop.clone(),
                numbers: tell_numbers.clone(),
            };
            crew.members.spawn(member.run());
        }
        crew
    }

    /// Crashes a member.
    pub(crate) fn crash(&self, member: usize, after: Duration) {
        let _ = self.crash[member % self.crash.len()].try_send(after);
    }

    /// Whether all members take part in their group.
    pub(crate) fn is_complete(&mut self) -> bool {
        self.look();
        let newest = |place| self.known.iter().rfind(|(whose, _)| *whose == place);
        (0..self.crash.len())
            .all(|place| newest(place).is_some_and(|(_, numbers)| numbers.snapshot().connected))
    }

    /// How many consumers were started, beyond the first ones.
    pub(crate) fn restarts(&mut self) -> usize {
        self.look();
        self.known.len().saturating_sub(self.crash.len())
    }

    /// The numbers of all, added up.
    pub(crate) fn totals(&mut self) -> Totals {
        self.look();
        let mut totals = Totals::default();
        for (_, numbers) in &self.known {
            totals.add(&numbers.snapshot());
        }
        totals
    }

    fn look(&mut self) {
        while let Ok(numbers) = self.numbers.try_recv() {
            self.known.push(numbers);
        }
    }

    /// Waits for a member to end by itself, which it only does when it cannot go on.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(crate) async fn failure(&mut self) -> anyhow::Result<()> {
        match self.members.join_next().await {
            Some(ended) => ended?,
            None => Ok(()),
        }
    }

    /// Stops all members, in good order.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        let mut result = Ok(());
        while let Some(ended) = self.members.join_next().await {
            result = result.and(ended?);
        }
        result
    }
}

/// The sums of the consumers' numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) deliveries: u64,
    pub(crate) duplicates: u64,
    pub(crate) failed_attempts: u64,
    pub(crate) units: u64,
}

impl Totals {
    fn add(&mut self, stats: &Stats) {
        self.deliveries += stats.deliveries;
        self.duplicates += stats.duplicates;
        self.failed_attempts += stats.attempts_charged;
        self.units += stats.units;
    }
}

/// One place in the crew: a consumer, and after its crash the next.
struct Member<Br, B> {
    place: usize,
    recipe: Recipe<Br, B>,
    crashes: mpsc::Receiver<Duration>,
    stop: CancellationToken,
    numbers: mpsc::UnboundedSender<(usize, StatsHandle)>,
}

impl<Br: Broker, B: Books> Member<Br, B> {
    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let doomed = Arc::new(AtomicBool::new(false));
            let consumer = self.consumer(Arc::clone(&doomed)).await?;
            let (stats, running) = consumer;
            let _ = self.numbers.send((self.place, stats));
            let death = async {
                match self.crashes.recv().await {
                    Some(after) => {
                        doomed.store(true, Ordering::Release);
                        tokio::time::sleep(after).await;
                    }
                    None => std::future::pending().await,
                }
            };
            // Dropping the consumer's future is the crash: whatever runs is gone, wherever it was.
            tokio::select! {
                ended = running => {
                    ended?;
                    return Ok(());
                }
                () = death => {}
            }
        }
    }

    /// A consumer, and its numbers.
    async fn consumer(
        &self,
        doomed: Arc<AtomicBool>,
    ) -> anyhow::Result<(
        StatsHandle,
        Pin<Box<dyn Future<Output = Result<Stats, RunError>> + Send>>,
    )> {
        let source = Mortal {
            source: self.recipe.broker.source(),
            doomed,
        };
        let store = self.recipe.books.store().await?;
        let (name, handler) = (&*self.recipe.name, self.recipe.handler.clone());
        let mut config = ConsumerConfig::default();
        config.workers = self.recipe.workers;
        config.lanes = self.recipe.lanes;
        config.batch.messages = self.recipe.batch;
        let stop = self.stop.clone().cancelled_owned();
        Ok(if handler.style == Style::Batch {
            let consumer = Consumer::batches(name, source, store, handler).config(config);
            (consumer.stats(), Box::pin(consumer.run(stop)))
        } else {
            let consumer = Consumer::new(name, source, store, handler).config(config);
            (consumer.stats(), Box::pin(consumer.run(stop)))
        })
    }
}

/// A source that forgets acknowledgements in the moments before its process crashes, as a crash does
/// with what is not sent yet. A source that is merely dropped still sends them.
struct Mortal<Src> {
    source: Src,
    doomed: Arc<AtomicBool>,
}

#[async_trait]
impl<Src: Source> Source for Mortal<Src> {
    fn system(&self) -> &'static str {
        self.source.system()
    }

    async fn horizon(&mut self) -> Vec<Reach> {
        self.source.horizon().await
    }

    async fn open(&mut self) -> Result<(), SourceError> {
        self.source.open().await
    }

    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        self.source.next().await
    }

    fn settle(&mut self, settlements: &[Settlement]) {
        if !self.doomed.load(Ordering::Acquire) {
            self.source.settle(settlements);
        }
    }

    fn pause(&mut self, assignment: AssignmentId) {
        self.source.pause(assignment);
    }

    fn resume(&mut self, assignment: AssignmentId) {
        self.source.resume(assignment);
    }

    fn longest_hold(&self, ordered: bool) -> Duration {
        self.source.longest_hold(ordered)
    }

    fn stop_receiving(&mut self) {
        self.source.stop_receiving();
    }

    async fn close(self: Box<Self>, deadline: Duration) -> Result<(), SourceError> {
        Box::new(self.source).close(deadline).await
    }
}
