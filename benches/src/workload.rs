//! The events, and the order in which they are delivered. All of it follows from a few numbers, so
//! that two runs of the load generator with the same numbers make the same topic.

use std::fmt;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::{Builder, Uuid};

/// An event: an amount moves from one account to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Chosen by the producer, once: a `UUIDv7`.
    pub event_id: Uuid,
    /// RFC 3339, the same instant as in the id.
    pub occurred_at: String,
    /// Loses the amount.
    pub from_account: String,
    /// Gains it.
    pub to_account: String,
    /// In the currency's smallest unit; positive.
    pub amount_minor: i64,
    /// ISO 4217.
    pub currency: String,
    /// Fills the payload up.
    pub memo: String,
}

/// The length of a payload, in bytes.
pub const PAYLOAD_LEN: usize = 300;

/// What the events and their order follow from.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Two workloads with different seeds have no event in common.
    pub seed: u64,
    /// When the first event happened, in milliseconds since 1970; the next ones follow at one a
    /// millisecond.
    pub first_ms: u64,
    /// How many accounts there are.
    pub accounts: u64,
    /// The share of deliveries that repeat an earlier event, from 0 to 1. Half of them repeat one of
    /// the last [`NEAR`] events, and mostly meet it in one batch; the others any earlier one.
    pub duplicates: f64,
}

/// How far back the near half of the duplicates goes, in events.
pub const NEAR: u64 = 64;

impl Workload {
    /// The event of that number, from 0.
    pub fn event(&self, number: u64) -> Transfer {
        let mut random = Random::new(self.seed, number);
        let ms = self.first_ms + number;
        let [a, b] = [random.next().to_le_bytes(), random.next().to_le_bytes()];
        let tail = [a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], b[0], b[1]];
        let from = random.below(self.accounts);
        // Another account than the first: a transfer to oneself would hide a lost row.
        let to = (from + 1 + random.below(self.accounts - 1)) % self.accounts;
        let mut transfer = Transfer {
            event_id: Builder::from_unix_timestamp_millis(ms, &tail).into_uuid(),
            occurred_at: rfc3339(ms),
            from_account: account(from),
            to_account: account(to),
            amount_minor: i64::try_from(1 + random.below(1_000_000)).unwrap_or(1),
            currency: "EUR".into(),
            memo: String::new(),
        };
        let bare = payload(&transfer).len();
        transfer.memo = "m".repeat(PAYLOAD_LEN.saturating_sub(bare));
        transfer
    }

    /// Which event each delivery is of, without end.
    pub fn deliveries(&self) -> impl Iterator<Item = u64> {
        let duplicates = self.duplicates;
        // Never the seed of an event.
        let mut random = Random::new(self.seed, u64::MAX);
        let mut events = 0;
        std::iter::from_fn(move || {
            if events > 0 && random.share() < duplicates {
                let near = random.below(2) == 0;
                let back = random.below(if near { NEAR.min(events) } else { events });
                return Some(events - 1 - back);
            }
            events += 1;
            Some(events - 1)
        })
    }
}

/// The payload, as JSON.
pub fn payload(transfer: &Transfer) -> Vec<u8> {
    // Strings and numbers only: it cannot fail, and an empty payload would not go unnoticed.
    serde_json::to_vec(transfer).unwrap_or_default()
}

fn account(number: u64) -> String {
    format!("acct-{number:06}")
}

fn rfc3339(ms: u64) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .ok()
        .and_then(|at| at.format(&Rfc3339).ok())
        .unwrap_or_default()
}

/// `SplitMix64`: the same numbers on every machine and with every version of every crate.
pub struct Random(u64);

impl Random {
    /// Its own sequence for each pair.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut seeded = Self(seed);
        Self(seeded.next() ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to `end`, without it. The bias of the remainder does not matter here.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From 0 up to 1, without it.
    #[allow(clippy::cast_precision_loss)] // 53 bits are what an f64 holds
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn workload(duplicates: f64) -> Workload {
        Workload {
            seed: 7,
            first_ms: 1_700_000_000_000,
            accounts: 1000,
            duplicates,
        }
    }

    #[test]
    fn a_payload_has_the_promised_length_and_reads_back() {
        for number in 0..1000 {
            let transfer = workload(0.0).event(number);
            let payload = payload(&transfer);

            assert_eq!(payload.len(), PAYLOAD_LEN);
            assert_eq!(
                serde_json::from_slice::<Transfer>(&payload).unwrap(),
                transfer
            );
        }
    }

    #[test]
    fn events_differ_and_a_repeat_is_the_same_event() {
        let workload = workload(0.0);
        let ids: HashSet<_> = (0..10_000).map(|n| workload.event(n).event_id).collect();

        assert_eq!(ids.len(), 10_000);
        assert_eq!(workload.event(42), workload.event(42));
    }

    #[test]
    fn the_share_of_duplicates_is_the_one_asked_for_near_and_far() {
        for share in [0.0, 0.2, 0.9] {
            let (mut seen, mut near, mut far) = (0_u64, 0_u64, 0_u64);
            for number in workload(share).deliveries().take(100_000) {
                match seen - number.min(seen) {
                    0 => seen += 1,
                    1..=NEAR => near += 1,
                    _ => far += 1,
                }
            }
            let duplicates = near + far;

            #[allow(clippy::cast_precision_loss)] // far below 2^53
            let got = duplicates as f64 / 100_000.0;
            assert!((got - share).abs() < 0.01, "{got} for {share}");
            assert!(far * 3 >= duplicates, "{far} of {duplicates} are far");
            assert!(near * 3 >= duplicates, "{near} of {duplicates} are near");
        }
    }
}
