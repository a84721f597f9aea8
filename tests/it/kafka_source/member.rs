//! A member of a group: drives a source as the runtime would, and shows what it saw.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oneffect_core::{
    AssignmentId, Delivery, Position, Revocation, Settle, Settlement, Source, SourceError,
    SourceEvent,
};
use oneffect_kafka::Kafka;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::broker::{PATIENCE, Topic};

/// What it does with deliveries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Settles each at once.
    Settle,
    /// Settles none by itself.
    Keep,
    /// Settles none, and does not answer revocations either.
    Hang,
}

/// What it has seen so far.
#[derive(Default)]
pub(crate) struct Seen {
    /// What is its own now.
    pub(crate) owned: BTreeMap<AssignmentId, Arc<str>>,
    /// Everything it was ever assigned.
    pub(crate) assigned: Vec<(AssignmentId, Arc<str>)>,
    pub(crate) revoked: Vec<(Vec<AssignmentId>, Duration)>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) connected: Vec<bool>,
    pub(crate) error: Option<SourceError>,
    /// Deliveries that broke the contract: their assignment was not handed out, or had ended.
    pub(crate) stray: Vec<Position>,
}

impl Seen {
    pub(crate) fn assignment(&self, partition: i32) -> Option<AssignmentId> {
        let suffix = format!("/{partition}");
        let found = self.owned.iter().find(|(_, name)| name.ends_with(&suffix));
        found.map(|(&id, _)| id)
    }

    pub(crate) fn offsets(&self, partition: i32) -> Vec<i64> {
        let of = self.deliveries.iter().map(place);
        of.filter(|&(p, _)| p == partition)
            .map(|(_, offset)| offset)
            .collect()
    }

    pub(crate) fn offsets_of(&self, id: AssignmentId) -> Vec<i64> {
        let of = self
            .deliveries
            .iter()
            .filter(|delivery| delivery.assignment == id);
        of.map(|delivery| place(delivery).1).collect()
    }

    pub(crate) fn partitions(&self) -> Vec<i32> {
        let names = self.owned.values();
        let mut partitions: Vec<i32> = names
            .map(|name| name.rsplit_once('/').unwrap().1.parse().unwrap())
            .collect();
        partitions.sort_unstable();
        partitions
    }
}

/// Partition and offset.
pub(crate) fn place(delivery: &Delivery) -> (i32, i64) {
    let Position::Log {
        partition, offset, ..
    } = delivery.position
    else {
        panic!("{} is in no log", delivery.position);
    };
    (partition, offset)
}

pub(crate) fn ack(delivery: &Delivery) -> Settlement {
    Settlement {
        assignment: delivery.assignment,
        tag: delivery.tag,
        settle: Settle::Ack,
    }
}

enum Command {
    Settle(Vec<Settlement>),
    Pause(AssignmentId),
    Resume(AssignmentId),
    Policy(Policy),
    AnswerRevocations,
    StopReceiving,
}

pub(crate) struct Member {
    commands: mpsc::UnboundedSender<Command>,
    seen: watch::Receiver<Seen>,
    task: JoinSet<Kafka>,
}

impl Topic {
    pub(crate) fn source(&self) -> Kafka {
        Kafka::new(&self.brokers, &self.group, [&self.name])
            .commit_interval(Duration::from_millis(100))
    }

    pub(crate) async fn join(&self, policy: Policy) -> Member {
        Member::start(self.source(), policy).await
    }
}

impl Member {
    pub(crate) async fn start(mut source: Kafka, policy: Policy) -> Self {
        source.open().await.unwrap();
        let (commands, inbox) = mpsc::unbounded_channel();
        let (publish, seen) = watch::channel(Seen::default());
        let mut task = JoinSet::new();
        task.spawn(drive(source, policy, inbox, publish));
        Self {
            commands,
            seen,
            task,
        }
    }

    /// Waits until what was seen fulfils a condition.
    pub(crate) async fn until(&mut self, what: &str, condition: impl Fn(&Seen) -> bool) {
        let waiting = self
            .seen
            .wait_for(|seen| condition(seen) || seen.error.is_some());
        let seen = tokio::time::timeout(PATIENCE, waiting).await;
        let seen = seen
            .unwrap_or_else(|_| panic!("gave up waiting for: {what}"))
            .unwrap();
        if let Some(error) = seen.error.as_ref().filter(|_| !condition(&seen)) {
            panic!("the source failed while waiting for: {what}: {error}");
        }
        assert_eq!(
            seen.stray,
            [],
            "deliveries of assignments that are not ours"
        );
    }

    pub(crate) fn look<T>(&self, at: impl FnOnce(&Seen) -> T) -> T {
        at(&self.seen.borrow())
    }

    fn command(&self, command: Command) {
        assert!(self.commands.send(command).is_ok(), "the member has ended");
    }

    pub(crate) fn settle(&self, settlements: impl IntoIterator<Item = Settlement>) {
        self.command(Command::Settle(settlements.into_iter().collect()));
    }

    /// Settles everything that was delivered so far.
    pub(crate) fn settle_all(&self) {
        self.settle(self.look(|seen| seen.deliveries.iter().map(ack).collect::<Vec<_>>()));
    }

    pub(crate) fn pause(&self, id: AssignmentId) {
        self.command(Command::Pause(id));
    }

    pub(crate) fn resume(&self, id: AssignmentId) {
        self.command(Command::Resume(id));
    }

    pub(crate) fn policy(&self, policy: Policy) {
        self.command(Command::Policy(policy));
    }

    pub(crate) fn answer_revocations(&self) {
        self.command(Command::AnswerRevocations);
    }

    pub(crate) fn stop_receiving(&self) {
        self.command(Command::StopReceiving);
    }

    /// Closes in good order.
    pub(crate) async fn close(self) {
        self.close_within(PATIENCE).await.unwrap();
    }

    pub(crate) async fn close_within(mut self, deadline: Duration) -> Result<(), SourceError> {
        drop(self.commands);
        let source = self.task.join_next().await.unwrap().unwrap();
        Box::new(source).close(deadline).await
    }
}

async fn drive(
    mut source: Kafka,
    mut policy: Policy,
    mut inbox: mpsc::UnboundedReceiver<Command>,
    publish: watch::Sender<Seen>,
) -> Kafka {
    let mut held: Vec<Revocation> = Vec::new();
    loop {
        tokio::select! {
            biased;
            command = inbox.recv() => match command {
                None => return source,
                Some(Command::Settle(settlements)) => source.settle(&settlements),
                Some(Command::Pause(id)) => source.pause(id),
                Some(Command::Resume(id)) => source.resume(id),
                Some(Command::Policy(new)) => policy = new,
                Some(Command::AnswerRevocations) => held.clear(),
                Some(Command::StopReceiving) => source.stop_receiving(),
            },
            event = source.next() => match event {
                Ok(SourceEvent::Assigned(assignments)) => publish.send_modify(|seen| {
                    for assignment in &assignments {
                        let known = seen.assigned.iter().any(|&(id, _)| id == assignment.id);
                        assert!(!known, "an assignment's id came twice");
                        seen.assigned.push((assignment.id, Arc::clone(&assignment.name)));
                        seen.owned.insert(assignment.id, Arc::clone(&assignment.name));
                    }
                }),
                Ok(SourceEvent::Deliveries(deliveries)) => {
                    if policy == Policy::Settle {
                        source.settle(&deliveries.iter().map(ack).collect::<Vec<_>>());
                    }
                    publish.send_modify(|seen| {
                        for delivery in deliveries {
                            if !seen.owned.contains_key(&delivery.assignment) {
                                seen.stray.push(delivery.position.clone());
                            }
                            seen.deliveries.push(delivery);
                        }
                    });
                }
                Ok(SourceEvent::Revoked(revocation)) => {
                    publish.send_modify(|seen| {
                        for id in &revocation.assignments {
                            seen.owned.remove(id);
                        }
                        seen.revoked.push((revocation.assignments.clone(), revocation.deadline));
                    });
                    if policy == Policy::Hang {
                        held.push(revocation);
                    }
                }
                Ok(SourceEvent::Connected(connected)) => {
                    publish.send_modify(|seen| seen.connected.push(connected));
                }
                Ok(_) => {}
                Err(error) => publish.send_modify(|seen| seen.error = Some(error)),
            },
        }
    }
}
