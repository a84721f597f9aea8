//! From a broker to a database, through everything that goes wrong on the way.

pub(crate) mod brokers;
pub(crate) mod databases;
mod handler;
mod hostile;
mod isolation;
mod payloads;
mod processes;
mod redrive;
mod staged;
mod storm;

use std::time::Duration;

use oneffect::{
    Consumer, RetrySchedule, RunError, Source, Stats, StatsHandle, Store, shutdown_signal,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::brokers::Broker;
use self::databases::Database;
pub(crate) use self::handler::Probe;
use crate::child;

/// Everything but the name, the same for consumers in this process and in a child.
fn consumer<Src: Source, D: Database>(
    source: Src,
    database: &D,
    probe: Probe,
) -> Consumer<Src, D::Store, Probe>
where
    Probe: oneffect::Handler<D::Store>,
{
    Consumer::new("probe", source, database.store(), probe).retry(
        RetrySchedule::default()
            // Attempts are remembered across processes, and here each process fails anew.
            .base(Duration::from_millis(20))
            .cap(Duration::from_millis(100))
            .max_attempts(12),
    )
}

/// A consumer in this process.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Stats, RunError>>,
    pub(crate) stats: StatsHandle,
    pub(crate) probe: Probe,
}

impl Running {
    pub(crate) async fn start<B: Broker, D: Database>(broker: &B, database: &D) -> Self
    where
        Probe: oneffect::Handler<D::Store>,
    {
        Self::start_with(broker.source().await, database, Probe::default())
    }

    pub(crate) fn start_with<Src: Source, D: Database>(
        source: Src,
        database: &D,
        probe: Probe,
    ) -> Self
    where
        Probe: oneffect::Handler<D::Store>,
    {
        Self::run(consumer(source, database, probe.clone()), probe)
    }

    pub(crate) fn run<Src, S, H>(consumer: Consumer<Src, S, H>, probe: Probe) -> Self
    where
        Src: Source,
        S: Store,
        H: oneffect::Handler<S>,
    {
        let stats = consumer.stats();
        let (stop, stopped) = oneshot::channel();
        #[allow(clippy::disallowed_methods, reason = "the handle is awaited in `stop`")]
        let task = tokio::spawn(consumer.run(async {
            let _ = stopped.await;
        }));
        Self {
            stop,
            task,
            stats,
            probe,
        }
    }

    /// A stop in good order; the numbers must add up.
    pub(crate) async fn stop(self) -> Stats {
        let _ = self.stop.send(());
        let stats = self.task.await.unwrap().unwrap();
        assert!(stats.balanced() && stats.in_flight == 0, "{stats:?}");
        stats
    }
}

/// The child's side: consumes until a signal ends it.
pub(crate) async fn run_until_killed(spec: child::Spec) {
    let probe = Probe::with_delay(Duration::from_millis(spec.delay_ms));
    let ended = match (spec.broker, spec.database) {
        (broker, databases::DatabaseSpec::Postgres(spec)) => {
            let database = databases::OnPostgres::join(spec).await;
            brokers::run(broker, &database, probe).await
        }
        (broker, databases::DatabaseSpec::Sqlite(spec)) => {
            let database = databases::OnSqlite::join(spec).await;
            brokers::run(broker, &database, probe).await
        }
    };
    let code = match ended {
        Ok(_) => 0,
        Err(RunError::DrainDeadline { .. }) => 3,
        Err(_) => 1,
    };
    std::process::exit(code);
}

/// Runs a consumer to its end, in the child.
async fn run_to_end<Src: Source, D: Database>(
    source: Src,
    database: &D,
    probe: Probe,
) -> Result<Stats, RunError>
where
    Probe: oneffect::Handler<D::Store>,
{
    consumer(source, database, probe)
        .run(shutdown_signal())
        .await
}
