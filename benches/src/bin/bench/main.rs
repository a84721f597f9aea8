//! The bench: runs contenders in turn on the same topics, checks what each has left in its
//! database, and says how fast they were. `scripts/bench` starts the services that it needs.

mod child;
mod contenders;
mod machine;
mod report;
mod topic;
mod trial;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use oneffect_benches::contender::Cluster;

use crate::contenders::{CONTENDERS, Contender, Pace};
use crate::report::Results;
use crate::topic::Topic;
use crate::trial::Bench;

/// Runs consumers against each other, on Kafka and PostgreSQL.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    cluster: Cluster,
    /// How often each contender runs.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Deliveries in a run of a contender that takes a batch a transaction.
    #[arg(long, default_value_t = 400_000)]
    messages: u64,
    /// Deliveries in a run of a contender that takes a transaction or a statement a message.
    #[arg(long, default_value_t = 40_000)]
    slow_messages: u64,
    /// Deliveries ahead of each run that fill the tables, which are then analysed.
    #[arg(long, default_value_t = 5_000)]
    warm_up: u64,
    #[arg(long, default_value_t = 8)]
    partitions: i32,
    /// The share of deliveries that repeat an earlier event, from 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    duplicates: f64,
    /// What decides a delivery's partition: `account` or `random`.
    #[arg(long, default_value = "account")]
    key: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these, by name; without the twins there are no ratios. Some take part only when they are
    /// named: `oneffect-unordered`, and those with events that fail once (`staged-fails-1`,
    /// `by-key-fails-1`, `plain-fails-1`, and the same with 0.1 and 10 percent).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// One JSON object a contender, on stdout, and nothing else there.
    #[arg(long)]
    json: bool,
    /// Few messages and rounds: shows that all of it works, and a rough number.
    #[arg(long, conflicts_with_all = ["rounds", "messages", "slow_messages", "warm_up"])]
    quick: bool,
    /// Gives up after so many minutes.
    #[arg(long, default_value_t = 60)]
    limit: u64,
}

impl Options {
    fn resolved() -> Self {
        let mut options = Self::parse();
        if options.quick {
            options.rounds = 2;
            options.messages = 80_000;
            options.slow_messages = 8_000;
            options.warm_up = 1_000;
        }
        options
    }

    fn contenders(&self) -> Result<Vec<&'static Contender>, String> {
        if let Some(unknown) = self
            .only
            .iter()
            .find(|name| contenders::named(name).is_none())
        {
            let names: Vec<_> = CONTENDERS.iter().map(|contender| contender.name).collect();
            return Err(format!(
                "no contender is called '{unknown}' (there are: {})",
                names.join(", ")
            ));
        }
        let chosen = |contender: &&Contender| {
            (self.only.is_empty() && contender.always)
                || self.only.iter().any(|name| name == contender.name)
        };
        Ok(CONTENDERS.iter().filter(chosen).collect())
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::resolved();
    let contenders = options.contenders()?;
    let give_up = Instant::now() + Duration::from_secs(60 * options.limit);
    let bench = Bench::new(&options.cluster).await?;
    let notes = machine::notes(bench.postgres()).await?;

    let topic = |name: &'static str, messages, seed| Topic::fill(&options, name, messages, seed);
    let warm_up = topic("warm-up", options.warm_up, options.seed)?;
    let slow = topic("slow", options.slow_messages, options.seed + 1)?;
    let fast = topic("fast", options.messages, options.seed + 2)?;

    let mut results = Results::new(&contenders);
    for round in 0..options.rounds {
        for turn in 0..contenders.len() {
            // Each round begins with another one, so that nobody is always the first.
            let index = (round + turn) % contenders.len();
            let contender = contenders[index];
            let timed = match contender.pace {
                Pace::Slow => &slow,
                Pace::Fast => &fast,
            };
            let left = give_up.saturating_duration_since(Instant::now());
            let run = bench.run(contender, round, [&warm_up, timed], left).await;
            match &run {
                Ok(run) => say(&format!("round {}: {}: {run}", round + 1, contender.name)),
                Err(error) => say(&format!(
                    "round {}: {}: WRONG: {error}",
                    round + 1,
                    contender.name
                )),
            }
            results.add(index, round, run);
        }
    }

    let mut out = io::stdout().lock();
    if options.json {
        results.write_json(&mut out, options.duplicates)?;
    } else {
        for note in &notes {
            writeln!(out, "{note}")?;
        }
        writeln!(out, "load average after: {}", machine::load())?;
        writeln!(
            out,
            "{} and {} deliveries ({} % duplicates) on {} partitions, {} rounds\n",
            fast.deliveries,
            slow.deliveries,
            options.duplicates * 100.0,
            options.partitions,
            options.rounds
        )?;
        results.write_table(&mut out)?;
    }
    Ok(if results.exact() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Tells a person that it goes on.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
