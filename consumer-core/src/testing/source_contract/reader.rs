//! The runtime's side of a source, reduced to what the clauses need.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::Fixture;
use crate::delivery::{AssignmentId, Delivery};
use crate::source::{Settle, Settlement, Source, SourceError, SourceEvent};

/// How long a broker may take before a test gives up on it.
const GIVE_UP: Duration = Duration::from_secs(90);

/// An open source. Checks with every event that assignments begin and end as they must.
pub(super) struct Reader<S> {
    pub(super) source: Box<S>,
    pub(super) assignments: BTreeSet<AssignmentId>,
    ended: BTreeSet<AssignmentId>,
    /// Delivered, and not taken yet.
    pub(super) waiting: Vec<Delivery>,
}

impl<S: Source> Reader<S> {
    pub(super) async fn open<F: Fixture<Source = S>>(fixture: &F) -> Self {
        let mut source = Box::new(fixture.source().await);
        let opened = timeout(GIVE_UP, source.open()).await;
        assert!(
            matches!(opened, Ok(Ok(()))),
            "the source does not open: {opened:?}"
        );
        Self {
            source,
            assignments: BTreeSet::new(),
            ended: BTreeSet::new(),
            waiting: Vec::new(),
        }
    }

    /// Reads until something is assigned.
    pub(super) async fn assigned<F: Fixture<Source = S>>(fixture: &F) -> Self {
        let mut reader = Self::open(fixture).await;
        let waited = timeout(GIVE_UP, async {
            while reader.assignments.is_empty() {
                reader.read().await;
            }
        });
        assert!(
            waited.await.is_ok(),
            "nothing was assigned within {GIVE_UP:?}"
        );
        reader
    }

    /// Reads until this many deliveries are there, and takes those.
    pub(super) async fn receive(&mut self, count: usize) -> Vec<Delivery> {
        let waited = timeout(GIVE_UP, async {
            while self.waiting.len() < count {
                self.read().await;
            }
        });
        let in_time = waited.await.is_ok();
        assert!(
            in_time,
            "{} of {count} deliveries within {GIVE_UP:?}",
            self.waiting.len()
        );
        self.waiting.drain(..count).collect()
    }

    /// Takes everything that comes until nothing comes for that long.
    pub(super) async fn receive_until_quiet(&mut self, quiet: Duration) -> Vec<Delivery> {
        while timeout(quiet, self.read()).await.is_ok() {}
        std::mem::take(&mut self.waiting)
    }

    pub(super) async fn read(&mut self) {
        let event = self.source.next().await;
        self.note(event, |_| {});
    }

    /// Takes note of an event; what is revoked is let go of after `before_letting_go`.
    pub(super) fn note(
        &mut self,
        event: Result<SourceEvent, SourceError>,
        before_letting_go: impl FnOnce(&mut S),
    ) {
        match event {
            Ok(SourceEvent::Assigned(assignments)) => {
                for assignment in assignments {
                    let id = assignment.id;
                    assert!(!self.ended.contains(&id), "{id:?} was assigned again");
                    assert!(self.assignments.insert(id), "{id:?} was assigned twice");
                }
            }
            Ok(SourceEvent::Deliveries(deliveries)) => {
                for delivery in &deliveries {
                    let known = self.assignments.contains(&delivery.assignment);
                    assert!(known, "{delivery:?} belongs to no assignment");
                }
                self.waiting.extend(deliveries);
            }
            Ok(SourceEvent::Revoked(revocation)) => {
                for id in &revocation.assignments {
                    assert!(
                        self.assignments.remove(id),
                        "{id:?} ended without having begun"
                    );
                    self.ended.insert(*id);
                }
                let assignments = &self.assignments;
                self.waiting
                    .retain(|delivery| assignments.contains(&delivery.assignment));
                before_letting_go(&mut self.source);
            }
            Ok(SourceEvent::Connected(_)) => {}
            Err(error) => panic!("the source gave up: {error:?}"),
        }
    }

    /// Reads while the fixture takes the assignments away and gives them back. `false` when it
    /// cannot.
    pub(super) async fn reassign<F: Fixture<Source = S>>(
        &mut self,
        fixture: &F,
        before_letting_go: impl Fn(&mut S),
    ) -> bool {
        let ended_before = self.ended.len();
        let mut reassign = pin!(fixture.reassign());
        let mut done = false;
        let waited = timeout(GIVE_UP, async {
            while !done || self.assignments.is_empty() || self.ended.len() == ended_before {
                tokio::select! {
                    supported = &mut reassign, if !done => {
                        done = true;
                        if !supported {
                            return false;
                        }
                    }
                    event = self.source.next() => self.note(event, &before_letting_go),
                }
            }
            true
        });
        let supported = waited.await;
        assert!(
            supported.is_ok(),
            "no assignment came back within {GIVE_UP:?}"
        );
        supported == Ok(true)
    }

    pub(super) fn settle(&mut self, deliveries: &[Delivery], settle: Settle) {
        self.source.settle(&settlements(deliveries, settle));
    }

    pub(super) async fn close(self) {
        let closed = timeout(GIVE_UP, self.source.close(Duration::from_secs(30))).await;
        assert!(
            matches!(closed, Ok(Ok(()))),
            "the source does not close: {closed:?}"
        );
    }
}

pub(super) fn settlements(deliveries: &[Delivery], settle: Settle) -> Vec<Settlement> {
    let settlement = |delivery: &Delivery| Settlement {
        assignment: delivery.assignment,
        tag: delivery.tag,
        settle,
    };
    deliveries.iter().map(settlement).collect()
}
