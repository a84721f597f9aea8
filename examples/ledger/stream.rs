//! A hostile stream of transfers: repeated, out of order, some refused, some unreadable.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::transfer::Transfer;

/// What the stream is made of. The rates are shares of the events, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// Distinct events.
    pub(crate) events: u64,
    /// Events that are sent a second time.
    pub(crate) duplicates: f64,
    /// Events that no handler can read.
    pub(crate) malformed: f64,
    /// Events that the handler must refuse.
    pub(crate) rejected: f64,
    pub(crate) seed: u64,
}

/// One sending.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// What it is to be kept in order with.
    pub(crate) key: String,
    pub(crate) payload: Vec<u8>,
}

/// The producer's own record of an event, which the books are compared with.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Produced {
    event_id: Uuid,
    from_account: String,
    to_account: String,
    amount_minor: i64,
    currency: &'static str,
    /// It must not be in the books.
    refused: bool,
}

/// Everything that was produced.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The readable events.
    pub(crate) events: Vec<Produced>,
    /// How many of them are to be refused.
    pub(crate) refused: u64,
    /// How many others are unreadable.
    pub(crate) malformed: u64,
    /// Messages sent, repeats included.
    pub(crate) messages: u64,
}

/// The stream; the same for the same mix, but for ids and times, which tell runs apart.
#[derive(Debug)]
pub(crate) struct Stream {
    mix: Mix,
    rng: StdRng,
    made: u64,
    /// Repeats, by the number of events after which they are due, and in the order of their making.
    repeats: BTreeMap<(u64, u64), Message>,
    record: Record,
}

const ACCOUNTS: u32 = 1_000;
const CURRENCIES: [&str; 3] = ["EUR", "GBP", "USD"];

impl Stream {
    pub(crate) fn new(mix: Mix) -> Self {
        Self {
            mix,
            rng: StdRng::seed_from_u64(mix.seed),
            made: 0,
            repeats: BTreeMap::new(),
            record: Record::default(),
        }
    }

    pub(crate) fn into_record(self) -> Record {
        self.record
    }

    fn event(&mut self) -> Message {
        self.made += 1;
        if self.rng.random_bool(self.mix.malformed) {
            self.record.malformed += 1;
            return self.malformed();
        }
        let transfer = self.transfer();
        let refused = transfer.refusal().is_some();
        self.record.refused += u64::from(refused);
        let message = Message {
            key: transfer.from_account.clone(),
            payload: json(&transfer),
        };
        if self.rng.random_bool(self.mix.duplicates) {
            self.repeat_later(&message, &transfer);
        }
        self.record.events.push(Produced {
            event_id: transfer.event_id,
            from_account: transfer.from_account,
            to_account: transfer.to_account,
            amount_minor: transfer.amount_minor,
            currency: CURRENCIES
                .into_iter()
                .find(|&currency| currency == transfer.currency)
                .unwrap_or_default(),
            refused,
        });
        message
    }

    /// At once, a little later, or much later, when many other events have gone by; one in four by
    /// another way, so that it overtakes its first or meets it in another consumer.
    fn repeat_later(&mut self, message: &Message, transfer: &Transfer) {
        let furthest = *[1, 1, 100, 20_000].choose(&mut self.rng).unwrap_or(&1);
        let due = self.made + self.rng.random_range(0..furthest);
        let mut repeat = message.clone();
        if self.rng.random_bool(0.25) {
            repeat.key.clone_from(&transfer.to_account);
        }
        self.repeats.insert((due, self.made), repeat);
    }

    fn transfer(&mut self) -> Transfer {
        let now = OffsetDateTime::now_utc();
        let from = self.rng.random_range(0..ACCOUNTS);
        let to = (from + self.rng.random_range(1..ACCOUNTS)) % ACCOUNTS;
        let mut transfer = Transfer {
            event_id: self.event_id(now),
            occurred_at: now,
            from_account: account(from),
            to_account: account(to),
            amount_minor: self.rng.random_range(1..1_000_000),
            currency: CURRENCIES[self.rng.random_range(0..CURRENCIES.len())].to_owned(),
            memo: format!(
                "invoice {:08}, {}",
                self.made,
                "thank you for your order; ".repeat(3)
            ),
        };
        if self.rng.random_bool(self.mix.rejected) {
            match self.rng.random_range(0..3) {
                0 => transfer.amount_minor = 0,
                1 => transfer.amount_minor = -transfer.amount_minor,
                _ => transfer.to_account.clone_from(&transfer.from_account),
            }
        }
        transfer
    }

    fn event_id(&mut self, now: OffsetDateTime) -> Uuid {
        let mut random = [0; 10];
        self.rng.fill_bytes(&mut random);
        let millis = now.unix_timestamp_nanos() / 1_000_000;
        uuid::Builder::from_unix_timestamp_millis(u64::try_from(millis).unwrap_or(0), &random)
            .into_uuid()
    }

    /// Such messages are not repeated: what has no id can only be told apart by its position.
    fn malformed(&mut self) -> Message {
        let transfer = self.transfer();
        let text = String::from_utf8_lossy(&json(&transfer)).into_owned();
        let payload = match self.rng.random_range(0..5) {
            0 => text.as_bytes()[..text.len() / 2].to_vec(),
            1 => text.replace("event_id", "id").into_bytes(),
            2 => text.replace("amount_minor", "amount").into_bytes(),
            3 => vec![0xff, 0xfe, 0x00, 0x01],
            _ => Vec::new(),
        };
        Message {
            key: transfer.from_account,
            payload,
        }
    }
}

impl Iterator for Stream {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let events_are_left = self.made < self.mix.events;
        let message = match self.repeats.first_entry() {
            Some(repeat) if repeat.key().0 <= self.made || !events_are_left => repeat.remove(),
            _ if events_are_left => self.event(),
            _ => return None,
        };
        self.record.messages += 1;
        Some(message)
    }
}

fn account(number: u32) -> String {
    format!("account-{number:04}")
}

fn json(transfer: &Transfer) -> Vec<u8> {
    serde_json::to_vec(transfer).unwrap_or_default()
}
