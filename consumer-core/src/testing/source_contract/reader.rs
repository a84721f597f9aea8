//! The runtime's side of a source, reduced to what the clauses need.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::Fixture;
use crate::delivery::{AssignmentId, Delivery};
use crate::source::{Revocation, Settle, Settlement, Source, SourceEvent};

/// How long a broker may take before a test gives up on it.
pub(super) const GIVE_UP: Duration = Duration::from_secs(90);

/// An open source that checks with every event that assignments begin and end as they must.
pub(super) struct Reader<S> {
    pub(super) source: Box<S>,
    pub(super) assignments: BTreeSet<AssignmentId>,
    ended: BTreeSet<AssignmentId>,
}

impl<S: Source> Reader<S> {
    pub(super) async fn open<F: Fixture<Source = S>>(fixture: &F) -> Self {
        let mut source = Box::new(fixture.source().await);
        let opened = timeout(GIVE_UP, source.open()).await;
        assert!(matches!(opened, Ok(Ok(()))), "the source does not open: {opened:?}");
        Self {
            source,
            assignments: BTreeSet::new(),
            ended: BTreeSet::new(),
        }
    }

    /// A source that has its assignment.
    pub(super) async fn assigned<F: Fixture<Source = S>>(fixture: &F) -> Self {
        let mut reader = Self::open(fixture).await;
        while reader.assignments.is_empty() {
            let deliveries = reader.deliveries(Instant::now() + GIVE_UP).await;
            assert_ne!(deliveries, Some(Vec::new()), "nothing was assigned in {GIVE_UP:?}");
        }
        reader
    }

    /// Takes note of an event, and hands on what the clauses look at.
    pub(super) fn note(&mut self, event: SourceEvent) -> Noted {
        match event {
            SourceEvent::Assigned(assignments) => {
                for assignment in assignments {
                    let id = assignment.id;
                    assert!(!self.ended.contains(&id), "{id:?} was assigned again");
                    assert!(self.assignments.insert(id), "{id:?} was assigned twice");
                }
                Noted::Nothing
            }
            SourceEvent::Deliveries(deliveries) => {
                assert!(!deliveries.is_empty(), "an event without deliveries");
                for delivery in &deliveries {
                    let known = self.assignments.contains(&delivery.assignment);
                    assert!(known, "{delivery:?} belongs to no assignment");
                }
                Noted::Deliveries(deliveries)
            }
            SourceEvent::Revoked(revocation) => {
                for id in &revocation.assignments {
                    assert!(self.assignments.remove(id), "{id:?} ended without having begun");
                    self.ended.insert(*id);
                }
                Noted::Revoked(revocation)
            }
            SourceEvent::Connected(_) => Noted::Nothing,
        }
    }
}
