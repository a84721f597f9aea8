//! The proof at midnight: many writers, across moves of the period and rises of the floor, with
//! duplicates before, at and after, and an effect table without any constraint.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use oneffect_core::{ConsumerId, DaysFrom, StoreError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;

on_each_server! {
    every_event_takes_effect_once_whatever_happens_around_midnight
}

/// How many days pass; the period moves every second one, the floor every one.
const DAYS: i32 = 10;
/// Writers, each with a session of its own kind.
const WRITERS: usize = 6;
/// New events a day, of each kind.
const EVENTS: u64 = 12;
/// For how many days after its first sending an event is sent again: well within the window of 8.
const REPEATS: i32 = 5;

/// What an id says of its time, and whether its day is forgotten already when it is first sent.
const KINDS: u64 = 6;

/// The event with that number, first sent on that day. The same each time it is asked for.
fn event(day: Day, kind: u64, number: u64) -> EventKey {
    let mut rng =
        StdRng::seed_from_u64(u64::from(day.number().unsigned_abs()) | number << 32 | kind << 48);
    match kind {
        // Around midnight, by producers whose clocks are hours off.
        0 => {
            let off = Duration::from_millis(rng.random_range(0..48 * 3_600_000));
            uuid_at(midnight_of(day.plus(-1)) + off, number)
        }
        // Some days old.
        1 => of_day(day.plus(-rng.random_range(0..3)), number << 8 | 1),
        2 => ulid(
            midnight_of(day) - Duration::from_millis(rng.random_range(0..1000)),
            rng.random(),
        ),
        3 => key(&uuid::Builder::from_random_bytes(rng.random())
            .into_uuid()
            .to_string()),
        4 => key(&format!("text-{day}-{number}")),
        // Long forgotten: taken as new.
        _ => of_day(
            day.plus(-30),
            u64::from(day.number().unsigned_abs()) * 1000 + number,
        ),
    }
}

fn ulid(time: SystemTime, random: u128) -> EventKey {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let millis = time.duration_since(UNIX_EPOCH).unwrap().as_millis();
    let value = millis << 80 | random >> 48;
    let digit = |place: u32| char::from(DIGITS[(value >> (5 * place) & 31) as usize]);
    key(&(0..26).rev().map(digit).collect::<String>())
}

struct World {
    start: Day,
    /// How many days have passed.
    passed: AtomicI32,
    over: AtomicBool,
    began: Instant,
}

async fn write(world: &World, store: &Postgres, consumer: ConsumerId, seed: u64) -> u64 {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut fresh = 0;
    while !world.over.load(Ordering::Relaxed) {
        let passed = world.passed.load(Ordering::Relaxed);
        let mut batch: Vec<EventKey> = Vec::new();
        // New every few milliseconds, and everybody's, so that rivals have one in hand at any moment.
        if rng.random_bool(0.8) {
            batch.push(key(&format!(
                "hot-{}",
                world.began.elapsed().as_millis() / 15
            )));
        }
        for _ in 0..rng.random_range(1..=8) {
            let day = world
                .start
                .plus(rng.random_range((passed - REPEATS).max(0)..=passed));
            let event = event(day, rng.random_range(0..KINDS), rng.random_range(0..EVENTS));
            if !batch.contains(&event) {
                batch.push(event);
            }
        }
        match unit(store, consumer, &batch, &mut rng).await {
            Ok(n) => fresh += n,
            // Stricter levels, and rivals for a key.
            Err(StoreError::RolledBack(error)) => {
                assert_ne!(
                    store.blame(&*error),
                    Some(oneffect_core::Blame::Outage),
                    "{error:?}"
                );
            }
            Err(StoreError::Busy) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    fresh
}

/// Claims, takes effect, and commits; or does not.
async fn unit(
    store: &Postgres,
    consumer: ConsumerId,
    batch: &[EventKey],
    rng: &mut StdRng,
) -> Result<u64, StoreError> {
    let mut begin = Begin::new(consumer);
    begin.late = Late::AsNew;
    begin.claim_wait = Duration::from_secs(5);
    let mut unit = store.begin(begin).await?;
    let claims: Vec<Claim> = batch.iter().cloned().map(Claim::new).collect();
    let verdicts = unit.claim(&claims).await?;
    let mut fresh = 0;
    for (event, verdict) in batch.iter().zip(verdicts) {
        match verdict {
            Verdict::Fresh(_) => {
                write_effect(unit.connection(), event).await;
                fresh += 1;
            }
            Verdict::Duplicate { .. } => {}
            other => panic!("{event}: {other:?}"),
        }
    }
    if rng.random_bool(0.3) {
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..8))).await;
    }
    match rng.random_range(0..10) {
        0 => {
            unit.rollback().await;
            Ok(0)
        }
        1 => {
            drop(unit);
            Ok(0)
        }
        _ => unit.commit().await.map(|()| fresh),
    }
}

async fn every_event_takes_effect_once_whatever_happens_around_midnight<const SERVER: u8>() {
    let start = some_day();
    let fixture = on_day!(SERVER, start);
    let consumer = fixture.store.open("ledger", DaysFrom::Id).await.unwrap();
    let world = Arc::new(World {
        start,
        passed: AtomicI32::new(0),
        over: AtomicBool::new(false),
        began: Instant::now(),
    });
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/Sao_Paulo",
        "Asia/Kathmandu",
    ];
    let mut writers = JoinSet::new();
    for n in 0..WRITERS {
        let store = another(&fixture, 1, ISOLATIONS[n % 3], zones[n % 4]).await;
        let world = Arc::clone(&world);
        let seed = u64::try_from(n).unwrap();
        writers.spawn(async move { write(&world, &store, consumer, seed).await });
    }
    let mut maintainers = JoinSet::new();
    for zone in &zones[2..] {
        let store = another(&fixture, 2, Isolation::Serializable, zone).await;
        let world = Arc::clone(&world);
        maintainers.spawn(async move {
            while !world.over.load(Ordering::Relaxed) {
                store.maintain().await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }

    for passed in 1..=DAYS {
        let midnight = midnight_of(start.plus(passed));
        let moments = [-3_600_000_i64, -1, 0, 1, 3_600_000];
        for millis in moments {
            let off = Duration::from_millis(millis.unsigned_abs());
            let now = if millis < 0 {
                midnight - off
            } else {
                midnight + off
            };
            fixture.set_clock(now).await;
            if millis == 0 {
                world.passed.store(passed, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        // Every other day all of it happens beside the writers before it is midnight again.
        if passed % 2 == 0 {
            until("the floor has risen", async || {
                floor(&fixture).await == start.plus(passed - 8).to_string()
            })
            .await;
        }
    }
    world.over.store(true, Ordering::Relaxed);
    let mut fresh = 0;
    while let Some(n) = writers.join_next().await {
        fresh += n.unwrap();
    }
    while let Some(ended) = maintainers.join_next().await {
        ended.unwrap();
    }

    let effects = effects_by_number(&fixture).await;
    let doubled: Vec<_> = effects
        .iter()
        .filter(|(_, effects)| *effects != 1)
        .collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    assert_eq!(u64::try_from(effects.len()).unwrap(), fresh);
    // Enough happened: most events were sent, the floor rose, and the period moved.
    assert!(fresh > KINDS * EVENTS * 4, "{fresh}");
    let maintained = maintain(&fixture.store).await;
    assert_eq!(maintained.floor, Some(start.plus(DAYS - 8)));
    let moves: i64 = sqlx::query_scalar("SELECT count(*) FROM inbox_period")
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    assert!(moves >= 4, "{moves}");
}

async fn floor<const SERVER: u8>(fixture: &OnServer<SERVER>) -> String {
    let sql = "SELECT to_char(floor, 'YYYY-MM-DD') FROM inbox_floor";
    sqlx::query_scalar(sql)
        .fetch_one(&fixture.pool)
        .await
        .unwrap()
}
