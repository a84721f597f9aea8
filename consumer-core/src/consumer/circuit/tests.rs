use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

use super::*;
use crate::event_key::EventId;

fn key(id: &str) -> EventKey {
    EventKey::new(EventId::new(id).unwrap())
}

/// A circuit, and units that begin and end in it.
struct Bench {
    circuit: Circuit,
    tasks: JoinSet<()>,
    rng: StdRng,
    stuck: bool,
}

impl Bench {
    fn new(workers: usize) -> Self {
        Self {
            circuit: Circuit::new(workers, Duration::from_hours(1)),
            tasks: JoinSet::new(),
            rng: StdRng::seed_from_u64(1),
            stuck: false,
        }
    }

    fn begin(&mut self) -> task::Id {
        let unit = self.tasks.spawn(async {}).id();
        self.circuit.begins(unit);
        unit
    }

    fn end(&mut self, unit: task::Id, evidence: Evidence<'_>) -> Option<Change> {
        let now = Instant::now();
        self.circuit
            .ended(unit, evidence, self.stuck, now, &mut self.rng)
    }

    fn run(&mut self, evidence: Evidence<'_>) -> Option<Change> {
        let unit = self.begin();
        self.end(unit, evidence)
    }

    /// Waits for the next probe, and tells how long that took.
    async fn wait(&mut self) -> Duration {
        let until = self.circuit.next_tick().expect("a probe is waited for");
        let before = Instant::now();
        tokio::time::sleep_until(until).await;
        self.circuit.tick(Instant::now());
        before.elapsed()
    }

    fn open(&mut self) {
        for n in 0.. {
            let event = key(&n.to_string());
            if self.run(Evidence::Failure(&event)).is_some() {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn it_opens_when_as_many_units_as_can_run_have_failed_and_none_has_succeeded() {
    for (workers, failures) in [(1, 5), (4, 5), (20, 20)] {
        let mut bench = Bench::new(workers);
        for n in 1..failures {
            assert_eq!(bench.run(Evidence::Failure(&key(&n.to_string()))), None);
        }
        assert_eq!(bench.circuit.room(0), workers);
        let opened = bench.run(Evidence::Failure(&key("last")));
        assert_eq!(opened, Some(Change::Opened { failures }));
        assert_eq!(bench.circuit.room(0), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_in_between_keeps_it_closed() {
    let mut bench = Bench::new(1);
    for n in 0..100 {
        let event = key(&n.to_string());
        let evidence = if n % 5 == 4 {
            Evidence::Success
        } else {
            Evidence::Failure(&event)
        };
        assert_eq!(bench.run(evidence), None);
    }
}

#[tokio::test(start_paused = true)]
async fn one_event_that_fails_for_ever_opens_it_only_when_all_else_waits_for_it() {
    let mut bench = Bench::new(1);
    for _ in 0..100 {
        assert_eq!(bench.run(Evidence::Failure(&key("poison"))), None);
    }
    bench.stuck = true;
    let opened = bench.run(Evidence::Failure(&key("poison")));
    assert!(matches!(opened, Some(Change::Opened { .. })));
    assert!(
        !bench.circuit.excuses(Instant::now()),
        "and it is blamed as before"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_lost_now_and_then_does_not_open_it() {
    let mut bench = Bench::new(4);
    for _ in 0..100 {
        for evidence in [Evidence::Outage, Evidence::Outage, Evidence::Silence] {
            assert_eq!(bench.run(evidence), None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn probes_come_one_at_a_time_with_full_jitter_and_a_bound() {
    let mut bench = Bench::new(4);
    bench.open();
    let mut waits = Vec::new();
    for _ in 0..1000 {
        assert_eq!(bench.circuit.room(0), 0);
        waits.push(bench.wait().await);
        assert_eq!(bench.circuit.room(0), 1);
        assert_eq!(bench.circuit.room(4), 0, "all workers are taken");
        let probe = bench.begin();
        assert_eq!(bench.circuit.room(1), 0, "one probe at a time");
        assert_eq!(bench.circuit.next_tick(), None);
        bench.end(probe, Evidence::Failure(&key("x")));
    }
    assert!(waits[0] <= FIRST_WAIT);
    let late = &waits[10..];
    assert!(
        late.iter()
            .all(|wait| *wait <= LONGEST_WAIT + Duration::from_millis(1))
    );
    // Full jitter: the waits lie all over the range.
    for tenth in 0..10 {
        let bucket = LONGEST_WAIT * tenth / 10..LONGEST_WAIT * (tenth + 1) / 10;
        let share = late.iter().filter(|wait| bucket.contains(*wait)).count();
        assert!((50..150).contains(&share), "{tenth}: {share}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_success_it_closes_and_lets_workers_back_one_by_one() {
    let mut bench = Bench::new(20);
    bench.open();
    bench.wait().await;
    let closed = bench.run(Evidence::Success);
    assert!(matches!(closed, Some(Change::Closed { failures: 20, .. })));
    for units in [1, 2, 4, 8, 16, 20, 20] {
        assert_eq!(bench.circuit.room(0), units);
        assert_eq!(bench.run(Evidence::Success), None);
    }
}

#[tokio::test(start_paused = true)]
async fn when_it_opens_again_before_all_workers_are_back_it_waits_as_long_as_before() {
    let mut bench = Bench::new(20);
    bench.open();
    for _ in 0..10 {
        bench.wait().await;
        bench.run(Evidence::Failure(&key("x")));
    }
    bench.wait().await;
    bench.run(Evidence::Success);
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        bench.open();
        longest = longest.max(bench.wait().await);
        bench.run(Evidence::Success);
    }
    assert!(longest > FIRST_WAIT, "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_unit_from_before_that_succeeds_closes_it_as_well() {
    let mut bench = Bench::new(20);
    let slow = bench.begin();
    bench.open();
    let closed = bench.end(slow, Evidence::Success);
    assert!(matches!(closed, Some(Change::Closed { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_again_closes_what_its_outage_has_opened() {
    let mut bench = Bench::new(1);
    for _ in 0..5 {
        bench.run(Evidence::Outage);
    }
    assert!(bench.circuit.is_open());
    bench.wait().await;
    let closed = bench.run(Evidence::Silence);
    assert!(matches!(closed, Some(Change::Closed { .. })));
}

#[tokio::test(start_paused = true)]
async fn duplicates_say_nothing_about_a_handler_until_there_are_many_in_a_row() {
    let mut bench = Bench::new(1);
    bench.open();
    bench.wait().await;
    for _ in 1..SILENT_PROBES {
        let probed = bench.run(Evidence::Silence);
        assert_eq!(probed, Some(Change::StillOpen));
        assert_eq!(bench.circuit.room(0), 1, "the next one may come at once");
    }
    let closed = bench.run(Evidence::Silence);
    assert!(matches!(closed, Some(Change::Closed { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_outage_excuses_its_events_until_the_patience_is_over() {
    let mut bench = Bench::new(1);
    assert!(!bench.circuit.excuses(Instant::now()));
    bench.open();
    assert!(bench.circuit.excuses(Instant::now()));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(!bench.circuit.excuses(Instant::now()));
}
