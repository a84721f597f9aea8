//! Tells SQS what has become of messages, and keeps hidden those that are still at work.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::api::{Answer, Api, Call, CallError, CallErrorKind, CallKind};
use crate::backoff::Backoff;
use crate::message::Queue;
use crate::shared::Shared;

/// How many calls of a kind may be under way, if each is full. What waits while a call is under way
/// forms the next batch, so a call that is not full waits for the one before.
const MAX_CALLS: usize = 4;

/// With so many deletes waiting nothing more is received.
const MAX_DELETES_WAITING: usize = 10_000;

/// After one failure the next call may still succeed; only a second one in a row is news.
const FAILURES_BEFORE_ALARM: u32 = 2;

/// Shorter than the receiver's: settlements come first when SQS grants little.
const RETRY: Backoff = Backoff {
    shortest: Duration::from_millis(100),
    longest: Duration::from_secs(5),
};

pub(crate) struct Settler {
    api: Arc<Api>,
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    calls: JoinSet<Called>,
    deletes: usize,
    changes: usize,
    failures: u32,
    resume_at: Instant,
    /// The last kind of failure that was logged, until a call succeeds.
    alarmed: Option<CallErrorKind>,
}

/// The end of one call.
struct Called {
    call: Call,
    sent: Instant,
    answers: Result<Vec<Answer>, CallError>,
}

impl Settler {
    pub(crate) fn new(api: Arc<Api>, shared: Arc<Shared>, queue: Arc<Queue>) -> Self {
        Self {
            api,
            shared,
            queue,
            calls: JoinSet::new(),
            deletes: 0,
            changes: 0,
            failures: 0,
            resume_at: Instant::now(),
            alarmed: None,
        }
    }

    /// Runs until the ledger is closed and SQS knows everything.
    pub(crate) async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let now = Instant::now();
            self.make_calls(now);
            if shared.ledger().is_done() {
                return;
            }
            let timer = self.next_timer(now);
            tokio::select! {
                biased;
                Some(called) = self.calls.join_next() => self.called(called),
                () = shared.settled.notified() => {}
                () = tokio::time::sleep_until(timer.unwrap_or(now)), if timer.is_some() => {}
            }
        }
    }

    fn make_calls(&mut self, now: Instant) {
        if now < self.resume_at {
            return;
        }
        for kind in [CallKind::Delete, CallKind::ChangeVisibility] {
            loop {
                let under_way = *self.under_way(kind);
                let mut ledger = self.shared.ledger();
                let full = ledger.fills_a_batch(kind, now);
                if under_way >= MAX_CALLS || under_way > 0 && !full {
                    break;
                }
                let Some(call) = ledger.next_call(kind, now) else {
                    break;
                };
                drop(ledger);
                *self.under_way(kind) += 1;
                let api = Arc::clone(&self.api);
                self.calls.spawn(async move {
                    let sent = Instant::now();
                    let answers = api.call(&call).await;
                    Called {
                        call,
                        sent,
                        answers,
                    }
                });
            }
        }
    }

    fn under_way(&mut self, kind: CallKind) -> &mut usize {
        match kind {
            CallKind::Delete => &mut self.deletes,
            CallKind::ChangeVisibility => &mut self.changes,
        }
    }

    /// When to look again without being told to. What is due already waits for a call that is under
    /// way, whose answer wakes us.
    fn next_timer(&self, now: Instant) -> Option<Instant> {
        let ledger = self.shared.ledger();
        let next = [CallKind::Delete, CallKind::ChangeVisibility]
            .into_iter()
            .filter_map(|kind| ledger.next_call_at(kind))
            .map(|at| at.max(self.resume_at))
            .filter(|at| *at > now);
        next.min()
    }

    fn called(&mut self, called: Result<Called, JoinError>) {
        let Called {
            call,
            sent,
            answers,
        } = match called {
            Ok(called) => called,
            // Nobody aborts calls but the dropping of their set. The source finds this task ended,
            // and tells the runtime.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return,
            },
        };
        *self.under_way(call.kind) -= 1;
        let now = Instant::now();
        match answers {
            Ok(answers) => {
                self.enter(&call, &answers, sent, now);
                self.recovered();
            }
            Err(error) => {
                debug!(queue = %self.queue.name, error = %error.message, ?call, "a call failed");
                if error.kind == CallErrorKind::Refused {
                    // Each entry has a limit of refusals, and so what waits has one.
                    let refused = Answer::Failed {
                        reason: error.message.clone(),
                        retriable: true,
                    };
                    self.enter(&call, &vec![refused; call.entries.len()], sent, now);
                } else {
                    self.shared.ledger().unanswered(&call.entries);
                    self.failures += 1;
                    self.resume_at = now + RETRY.after(self.failures);
                }
                self.alarm(&error);
            }
        }
        self.tell_receiver();
    }

    fn enter(&self, call: &Call, answers: &[Answer], sent: Instant, now: Instant) {
        let mut ledger = self.shared.ledger();
        for (entry, answer) in call.entries.iter().zip(answers) {
            ledger.answered(entry, answer, sent, now);
        }
    }

    fn recovered(&mut self) {
        self.failures = 0;
        if self.alarmed.take().is_some() {
            info!(queue = %self.queue.name, "settling again");
        }
        self.shared.set_health(|health| health.settling = true);
    }

    fn alarm(&mut self, error: &CallError) {
        let news = self.alarmed != Some(error.kind);
        let lasting =
            error.kind == CallErrorKind::Refused || self.failures >= FAILURES_BEFORE_ALARM;
        if news && lasting {
            self.alarmed = Some(error.kind);
            warn!(queue = %self.queue.name, error = %error.message, "cannot settle, trying on");
        }
        if self.failures >= FAILURES_BEFORE_ALARM && error.kind == CallErrorKind::Unreachable {
            self.shared.set_health(|health| health.settling = false);
        }
    }

    fn tell_receiver(&self) {
        let behind = {
            let ledger = self.shared.ledger();
            let kinds = [CallKind::Delete, CallKind::ChangeVisibility];
            let waiting = kinds
                .iter()
                .any(|&kind| ledger.next_call_at(kind).is_some());
            self.failures > 0 && waiting || ledger.deletes_waiting() >= MAX_DELETES_WAITING
        };
        self.shared.set_gate(|gate| gate.behind = behind);
    }
}
