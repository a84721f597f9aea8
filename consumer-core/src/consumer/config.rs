//! The options of a consumer.

use std::time::Duration;

use crate::day::{Day, DaysFrom};
use crate::dead_letter::DeadLetterBounds;
use crate::delivery::Delivery;
use crate::event_key::EventKey;
use crate::fingerprint::Fingerprint;
use crate::flow::Limit;
use crate::identify::{IdFrom, TenantFrom, TimeFrom, Unidentified, Untimed};
use crate::lanes::Lanes;
use crate::late_policy::LatePolicy;
use crate::retry::RetrySchedule;
use crate::window::ReplayHorizon;

/// All options of a consumer, with their defaults. The setters of [`Consumer`](crate::Consumer) do
/// the same one by one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerConfig {
    /// Where the event id comes from. Default: the header or attribute `event-id`, then
    /// `/event_id` in the JSON payload.
    pub event_id: IdFrom,
    /// Whose event it is; part of the event key, so that one tenant's ids never collide with
    /// another's. Default: nobody's in particular, the empty tenant.
    pub tenant: TenantFrom,
    /// Where the time stands that the producer repeats with every sending of an event; see
    /// [`Consumer::producer_repeats_time`](crate::Consumer::producer_repeats_time). Default: there
    /// is none, and only a time inside the id counts.
    pub producer_repeats_time: Option<TimeFrom>,
    /// What becomes of events whose day is forgotten. Default: they are set aside.
    pub late: LatePolicy,
    /// What of an event's content is remembered with its key. Default: nothing.
    pub fingerprint: Fingerprint,
    /// How many bytes a handler's reply may have; what is larger is set aside, not stored. The
    /// inbox remembers replies for as long as it remembers their events, so they weigh on it.
    /// Default 16 KiB.
    pub reply_limit: usize,
    /// How many units of work run at once; each holds one database connection, so the pool should
    /// have one or two more. Default 4. A store that takes only one writer runs one.
    pub workers: usize,
    /// What is handled in order. Default: all of a partition.
    pub lanes: Lanes,
    /// The largest batch that one unit takes. Units take what is waiting and never wait for more;
    /// the size follows the load and the handler's pace. Default 500 messages, 4 MiB.
    pub batch: Limit,
    /// What may be in flight in this process, waiting or running. Half of it is for whichever
    /// partition comes first, the other half is shared out evenly; a partition that has its share is
    /// paused while the first half is used up. Default 100,000 messages, 32 MiB: it is bytes that
    /// memory is made of, each message counted with 512 of them besides its own.
    pub in_flight: Limit,
    /// When failed events run again, and when they are set aside.
    pub retry: RetrySchedule,
    /// How long failures excuse their events while nothing at all succeeds. When unit after unit
    /// fails, and more than one event, the *circuit* opens: the consumer stands still but for one
    /// event that is tried every few seconds, and closes it when one succeeds. So long an outage of
    /// what the handler needs is charged to no event, and sets none aside; beyond it, the events
    /// themselves are blamed, by the retry schedule. Longer is safer where order matters, shorter
    /// where a handful of bad events in a row must not hold up the rest. Default 1 hour.
    pub outage_patience: Duration,
    /// How often in a row a process may end while it handles one event and nothing else, before that
    /// event is set aside as a dead letter of the kind
    /// [`Crashed`](crate::DeadLetterKind::Crashed); see
    /// [`Consumer::crash_guard`](crate::Consumer::crash_guard). Default: never, no guard.
    pub crash_guard: Option<u32>,
    /// How long one handler may take for one event before its future is dropped, which counts as a
    /// failure. Keep it below the store's own deadline for a transaction. Default 50 s.
    pub handler_timeout: Duration,
    /// How much of what cannot be handled is kept, and how many events; see [`DeadLetterBounds`].
    pub dead_letters: DeadLetterBounds,
    /// Whether events that the handler rejects are set aside as well, to be looked at and redriven.
    /// Default: no; their inbox row has the reason.
    pub set_aside_rejected: bool,
    /// After so many failed redrives a letter is not tried again until it is asked for anew. They
    /// are as far apart as the attempts of `retry`. Default 3.
    pub redrive_attempts: u32,
    /// How long running units may take to finish when the consumer stops; what takes longer is
    /// aborted, and runs again elsewhere. Default 8 s: container platforms kill after 10.
    pub drain: Duration,
    /// How far back somebody outside of the broker may publish events again, which the window has
    /// to cover. Default: nobody does.
    pub replay_horizons: Vec<ReplayHorizon>,
    /// Why the consumer starts although duplicates may come after their events are forgotten, as a
    /// reader of the log will see it. Default: it does not.
    pub accept_short_window: Option<Box<str>>,
    /// Every random choice (jitter) follows from it. Default: a new seed each time.
    pub seed: Option<u64>,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            event_id: IdFrom::default(),
            tenant: TenantFrom::default(),
            producer_repeats_time: None,
            late: LatePolicy::default(),
            fingerprint: Fingerprint::default(),
            reply_limit: 16 << 10,
            workers: 4,
            lanes: Lanes::default(),
            batch: Limit {
                messages: 500,
                bytes: 4 << 20,
            },
            in_flight: Limit {
                messages: 100_000,
                bytes: 32 << 20,
            },
            retry: RetrySchedule::default(),
            outage_patience: Duration::from_hours(1),
            crash_guard: None,
            handler_timeout: Duration::from_secs(50),
            dead_letters: DeadLetterBounds::default(),
            set_aside_rejected: false,
            redrive_attempts: 3,
            drain: Duration::from_secs(8),
            replay_horizons: Vec::new(),
            accept_short_window: None,
            seed: None,
        }
    }
}

impl ConsumerConfig {
    /// The event key of a delivery, or why it has none.
    pub(crate) fn identify(&self, delivery: &Delivery) -> Result<EventKey, Unidentified> {
        let mut key = self.event_id.identify(delivery)?;
        if let Some(tenant) = self.tenant.find(delivery)? {
            key.tenant = tenant;
        }
        Ok(key)
    }

    /// The day that an event is of, under which it is remembered.
    pub(crate) fn day(&self, key: &EventKey, delivery: &Delivery) -> Result<Option<Day>, Untimed> {
        match &self.producer_repeats_time {
            None => Ok(key.id.day()),
            Some(time) => time.find(delivery).map(Some),
        }
    }

    pub(crate) fn days_from(&self) -> DaysFrom {
        match self.producer_repeats_time {
            None => DaysFrom::Id,
            Some(_) => DaysFrom::Producer,
        }
    }

    /// How long an event can take from its first attempt until it is set aside, as long as nothing
    /// is away that is nobody's fault.
    pub fn longest_failure(&self) -> Duration {
        let attempts = self.handler_timeout.saturating_mul(self.retry.max_attempts);
        attempts.saturating_add(self.retry.longest_total())
    }

    /// What cannot work, and why.
    pub(crate) fn validate(&self) -> Result<(), String> {
        self.event_id
            .validate()
            .map_err(|reason| format!("event_id: {reason}"))?;
        self.tenant
            .validate()
            .map_err(|reason| format!("tenant: {reason}"))?;
        if let Some(time) = &self.producer_repeats_time {
            let valid = time.validate();
            valid.map_err(|reason| format!("producer_repeats_time: {reason}"))?;
        }
        if self.event_id.brings_tenant() && !self.tenant.is_nobody() {
            return Err(
                "tenant: a CloudEvent's tenant is its source, and a closure for the event id gives \
                 the tenant with it; to combine them, use IdFrom::closure alone"
                    .into(),
            );
        }
        let at_least_one = [
            ("workers", self.workers),
            ("batch.messages", self.batch.messages),
            ("batch.bytes", self.batch.bytes),
            ("in_flight.messages", self.in_flight.messages),
            ("in_flight.bytes", self.in_flight.bytes),
            ("retry.max_attempts", self.retry.max_attempts as usize),
            (
                "dead_letters.letters",
                self.dead_letters.letters.try_into().unwrap_or(usize::MAX),
            ),
            ("redrive_attempts", self.redrive_attempts as usize),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(format!("{name} is 0, and must be at least 1"));
            }
        }
        if self.crash_guard == Some(0) {
            return Err(
                "crash_guard is 0: an event that has ended no process would be set aside; give how \
                 often it may, 3 for example"
                    .into(),
            );
        }
        for horizon in &self.replay_horizons {
            if horizon.name.is_empty() {
                return Err("replay_horizon: it has no name: say who publishes again".into());
            }
        }
        if (self.accept_short_window.as_deref()).is_some_and(|reason| reason.trim().is_empty()) {
            return Err("accept_short_window: say why, for whoever reads the log".into());
        }
        if self.handler_timeout.is_zero() {
            return Err("handler_timeout is 0: no handler could ever finish".into());
        }
        Ok(())
    }
}
