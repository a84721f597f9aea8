//! Producing, consuming, crashing and auditing, until all is settled.

use std::time::Duration;

use anyhow::{Context as _, bail};
use oneffect::shutdown_signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::books::{Books, audit};
use crate::broker::Broker;
use crate::crew::{Crew, Recipe};
use crate::options::Task;
use crate::report::{Progress, Report};
use crate::stream::{Mix, Record, Stream};

/// How many messages are sent before it is looked whether there is room for more.
const CHUNK: usize = 1_000;

/// How often the database is asked how far it is; less often where it takes long to answer.
const LOOK: Duration = Duration::from_millis(250);

/// How long nothing may be settled, where this process produces as well, before it gives up.
const STUCK: Duration = Duration::from_mins(2);

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) task: Task,
    pub(crate) mix: Mix,
    pub(crate) natural_key: bool,
    pub(crate) crashes: u32,
    /// A crash waits until all consumers are back from the last one: the mock needs it, since a group
    /// that has lost all its members takes its time to begin anew.
    pub(crate) one_by_one: bool,
    pub(crate) consumers: usize,
}

/// Sends the whole stream.
async fn send<Br: Broker>(broker: Br, mix: Mix) -> anyhow::Result<Record> {
    let mut stream = Stream::new(mix);
    loop {
        let messages: Vec<_> = stream.by_ref().take(CHUNK).collect();
        if messages.is_empty() {
            return Ok(stream.into_record());
        }
        broker.room().await?;
        broker.send(messages).await?;
    }
}

/// Only produces.
pub(crate) async fn produce<Br: Broker>(broker: &Br, mix: Mix) -> anyhow::Result<Report> {
    broker.prepare().await?;
    let begun = Instant::now();
    let record = tokio::select! {
        record = send(broker.clone(), mix) => record?,
        () = shutdown_signal() => bail!("stopped before all was sent"),
    };
    Ok(Report {
        events: mix.events,
        elapsed: begun.elapsed(),
        record: Some(record),
        ..Report::default()
    })
}

/// Consumes, and produces as well where the task says so.
pub(crate) async fn consume<Br: Broker, B: Books>(
    plan: &Plan,
    recipe: Recipe<Br, B>,
) -> anyhow::Result<Report> {
    let Recipe { books, broker, .. } = &recipe;
    books.prepare(plan.natural_key).await?;
    let produces = plan.task == Task::Both;
    if produces {
        broker.prepare().await?;
    }
    let before = books.settled(&recipe.name).await?;
    let goal = match plan.task {
        Task::Consume { until } => until,
        Task::Both | Task::Produce => Some(before.events() + plan.mix.events),
    };

    let begun = Instant::now();
    let mut crew = Crew::start(plan.consumers, &recipe);
    let mut producing = JoinSet::new();
    if produces {
        producing.spawn(send(broker.clone(), plan.mix));
    }
    let mut crashes = Crashes::new(plan, before.events());
    let mut progress = Progress::new(goal);
    let mut signal = std::pin::pin!(shutdown_signal());
    let mut look_at = begun;
    let mut record = None;
    let mut settled_after = None;
    let mut moved = (before.events(), begun);
    let reached = loop {
        tokio::select! {
            () = &mut signal => break false,
            ended = crew.failure() => {
                ended?;
                bail!("a consumer has ended by itself");
            }
            Some(sent) = producing.join_next() => record = Some(sent??),
            () = sleep_until(look_at) => {
                let looked_at = Instant::now();
                let settled = books.settled(&recipe.name).await;
                let settled = settled.context("cannot count what is settled")?.events();
                look_at = Instant::now() + LOOK.max(looked_at.elapsed() * 5);
                crashes.carry_out(settled, &mut crew);
                progress.show(settled, &crew.totals(), crew.restarts());
                if settled > moved.0 {
                    moved = (settled, Instant::now());
                }
                if goal.is_some_and(|goal| settled >= goal) && producing.is_empty() {
                    settled_after.get_or_insert_with(|| begun.elapsed());
                    // What is left are repeats, and these are to be consumed too.
                    if !produces || broker.backlog().await? == 0 {
                        break true;
                    }
                }
                if produces && moved.1.elapsed() > STUCK {
                    bail!("nothing has been settled for {STUCK:?}, and {settled} events are: giving up");
                }
            }
        }
    };
    producing.shutdown().await;
    crew.stop().await?;
    progress.end();
    if produces && !reached {
        bail!("stopped before all was settled");
    }
    let elapsed = settled_after.unwrap_or_else(|| begun.elapsed());
    progress.audit();
    let settled = books.settled(&recipe.name).await?.since(before);
    let audit = audit(books, &recipe.name, record.as_ref(), settled).await?;
    progress.end();
    Ok(Report {
        events: settled.events(),
        settled: Some(settled),
        totals: crew.totals(),
        restarts: crew.restarts(),
        elapsed,
        audit: Some(audit),
        record,
    })
}

/// When consumers crash: at numbers of settled events drawn from the seed, so that a slow machine
/// sees as many crashes as a quick one.
struct Crashes {
    /// The last is next.
    at: Vec<u64>,
    one_by_one: bool,
    rng: StdRng,
}

impl Crashes {
    fn new(plan: &Plan, settled_before: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(plan.mix.seed);
        let mut at: Vec<u64> = (0..plan.crashes)
            .map(|_| settled_before + rng.random_range(0..plan.mix.events.max(1)))
            .collect();
        at.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            at,
            one_by_one: plan.one_by_one,
            rng,
        }
    }

    fn carry_out(&mut self, settled: u64, crew: &mut Crew) {
        let may = !self.one_by_one || crew.is_complete();
        if may && self.at.pop_if(|at| *at <= settled).is_some() {
            let after = Duration::from_millis(self.rng.random_range(0..500));
            crew.crash(self.rng.random_range(0..usize::MAX), after);
        }
    }
}
