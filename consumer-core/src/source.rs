//! The seam to brokers: who hands out deliveries, and takes back what became of them.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::delivery::{AssignmentId, Delivery};
use crate::finding::Finding;
use crate::handler::one_line;
use crate::window::{Reach, Window};

/// Hands out deliveries and takes back settlements.
///
/// The runtime owns a source and calls it from one task: [`open`](Source::open) once, then
/// [`next`](Source::next) again and again, with [`settle`](Source::settle),
/// [`pause`](Source::pause) and [`resume`](Source::resume) in between; at the end
/// [`stop_receiving`](Source::stop_receiving), more `settle`, and [`close`](Source::close).
///
/// # Contract
/// 1. Every delivery belongs to an assignment that was handed out before it and has not ended.
/// 2. An assignment's id is never used again, also when the same partition comes back.
/// 3. What was delivered and not acknowledged is delivered again, to this or another process, after
///    this one has let go of it.
/// 4. What was acknowledged before the source closed in good order is not delivered again.
/// 5. A settlement for an assignment that has ended changes nothing.
/// 6. `next` is cancel-safe: dropping its future loses no delivery.
/// 7. Deliveries of one [`Order`](crate::Order) come in the broker's order.
/// 8. While an assignment is paused, at most what was already on its way arrives for it, and it
///    keeps its place in the group.
#[async_trait]
pub trait Source: Send + 'static {
    /// A short name for logs and metrics, as OpenTelemetry spells it: `kafka`, `aws_sqs`.
    fn system(&self) -> &'static str;

    /// Connects, and checks what can be checked before the first event: that topics or queues
    /// exist, and that no setting contradicts the guarantee.
    ///
    /// # Errors
    /// [`SourceError::Misconfigured`] for what will not go away by itself.
    async fn open(&mut self) -> Result<(), SourceError>;

    /// For how long a duplicate may still come from here, by each way there is. Asked before the
    /// source is opened; takes part in nothing and changes nothing. What the broker refuses to tell
    /// is [`Reach::unknown`], not left out.
    async fn horizon(&mut self) -> Vec<Reach> {
        let why = "it does not say for how long it keeps events";
        vec![Reach::unknown(self.system(), why)]
    }

    /// Looks at the broker's settings and at what waits there, for people, where the inbox remembers
    /// that long. Works as well before the source is opened; takes part in nothing and changes
    /// nothing. What cannot be looked at is a finding too. The window itself is not checked here.
    async fn examine(&mut self, _window: Window) -> Vec<Finding> {
        Vec::new()
    }

    /// Waits for what happens next.
    ///
    /// # Errors
    /// Only what the source cannot recover from by itself; the consumer stops then. Lost
    /// connections, throttling and the like are the source's to log and to ride out.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    async fn next(&mut self) -> Result<SourceEvent, SourceError>;

    /// Takes back deliveries. Never blocks: what needs the network happens in the background, is
    /// retried there, and is complete when [`close`](Source::close) or a revocation's commit is.
    fn settle(&mut self, settlements: &[Settlement]);

    /// Stops fetching for an assignment, which stays ours. Idempotent.
    fn pause(&mut self, assignment: AssignmentId);

    /// Takes back a [`pause`](Source::pause). Idempotent.
    fn resume(&mut self, assignment: AssignmentId);

    /// For how long a failed event may wait in this process for its next attempt. One that has to
    /// wait longer is released to the broker with what is left of its delay.
    ///
    /// `ordered` tells whether the event is in a lane.
    fn longest_hold(&self, ordered: bool) -> Duration;

    /// Begins to stop: from now on `next` hands out no deliveries.
    fn stop_receiving(&mut self);

    /// Completes all settlements and lets go of everything else, within the deadline.
    ///
    /// # Errors
    /// When the deadline passed first, or the broker refused the last settlements. Nothing is lost
    /// then; some events will be delivered again, and found to be duplicates.
    async fn close(self: Box<Self>, deadline: Duration) -> Result<(), SourceError>;
}

fn _dyn_compatible(_: &dyn Source) {}

/// What a source has to say.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceEvent {
    /// Parts of the source are ours from now on.
    Assigned(Vec<Assignment>),
    /// Events to handle.
    Deliveries(Vec<Delivery>),
    /// Assignments end.
    Revoked(Revocation),
    /// Whether the source takes part in its group: `false` turns readiness red.
    Connected(bool),
}

/// A part of a source that this process may read from now on.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Its id, new each time.
    pub id: AssignmentId,
    /// Its name: topic and partition, `orders/3`, or the queue's name, as the positions of its
    /// deliveries have them.
    pub name: Arc<str>,
}

/// The end of some assignments.
///
/// The runtime drops what it has not begun, waits for the units of work that hold events of theirs,
/// settles, and then drops this; the source waits for that before it answers the broker.
#[derive(Debug)]
pub struct Revocation {
    /// Which assignments end.
    pub assignments: Vec<AssignmentId>,
    /// How long running units may take to finish. Zero when the assignments are already somebody
    /// else's, and nothing can be settled any more.
    pub deadline: Duration,
    _done: oneshot::Sender<std::convert::Infallible>,
}

impl Revocation {
    /// A revocation, and what tells the source that the runtime is through with it: the receiver
    /// ends (with an error, which means nothing) when the runtime drops the revocation.
    pub fn new(
        assignments: Vec<AssignmentId>,
        deadline: Duration,
    ) -> (Self, oneshot::Receiver<std::convert::Infallible>) {
        let (done, drained) = oneshot::channel();
        let revocation = Self {
            assignments,
            deadline,
            _done: done,
        };
        (revocation, drained)
    }
}

/// What becomes of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// Its assignment.
    pub assignment: AssignmentId,
    /// The source's mark on it.
    pub tag: u64,
    /// What the broker is told.
    pub settle: Settle,
}

/// What the broker is told about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It is settled: a verified commit holds its event key or its dead letter.
    Ack,
    /// It is not: hand it out again, not before this long from now. Where the broker cannot delay,
    /// it comes when it comes.
    Release(Duration),
}

/// Why a source cannot go on.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A person must change something; the message says what and where.
    #[error("{message}")]
    Misconfigured {
        /// What is wrong, and what to do.
        message: String,
        /// What the client library or broker said, if it was asked.
        #[source]
        cause: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The broker or its client has given up on us.
    #[error("{message}")]
    Fatal {
        /// What happened, and what to do.
        message: String,
        /// What the client library said.
        #[source]
        cause: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The source did not close in time or not in good order.
    #[error("the source was abandoned while closing: {message}")]
    Unclean {
        /// What was left undone.
        message: String,
    },
}

impl SourceError {
    /// Something a person must change.
    pub fn misconfigured(message: impl Into<String>) -> Self {
        Self::Misconfigured {
            message: message.into(),
            cause: None,
        }
    }

    /// Something that cannot be recovered from within this process.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::Fatal {
            message: message.into(),
            cause: None,
        }
    }

    /// Adds what the client library said.
    #[must_use]
    pub fn because(mut self, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        if let Self::Misconfigured { cause, .. } | Self::Fatal { cause, .. } = &mut self {
            *cause = Some(error.into());
        }
        self
    }
}

/// The error and its causes, as a person reads them.
impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(self))
    }
}
