//! The database as the auditor sees it: from outside, in SQL of its own.

pub(crate) mod postgres;
pub(crate) mod sqlite;

use crate::entry::Entries;
use crate::stream::{Produced, Record};

/// A database with the inbox and the ledger in it.
pub(crate) trait Books: Clone + Send + Sync + 'static {
    type Store: Entries;

    /// Makes the inbox and the ledger's table, where they are missing. Any number of processes may
    /// do so at once.
    fn prepare(&self, natural_key: bool) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// A store for one consumer.
    fn store(&self) -> impl Future<Output = anyhow::Result<Self::Store>> + Send;

    /// What has become of the consumer's events.
    fn settled(&self, consumer: &str) -> impl Future<Output = anyhow::Result<Settled>> + Send;

    /// Whether each event in the books has two entries that sum to zero.
    fn pairs(&self) -> impl Future<Output = anyhow::Result<Pairs>> + Send;

    /// The books, and the inbox, against what was produced.
    fn compare(
        &self,
        consumer: &str,
        produced: &[Produced],
    ) -> impl Future<Output = anyhow::Result<Comparison>> + Send;
}

/// How many distinct events are settled, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settled {
    pub(crate) applied: u64,
    pub(crate) rejected: u64,
    pub(crate) dead_letters: u64,
}

impl Settled {
    pub(crate) fn events(self) -> u64 {
        self.applied + self.rejected + self.dead_letters
    }

    /// What came after an earlier look.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            applied: self.applied - before.applied,
            rejected: self.rejected - before.rejected,
            dead_letters: self.dead_letters - before.dead_letters,
        }
    }
}

impl TryFrom<(i64, i64, i64)> for Settled {
    type Error = std::num::TryFromIntError;

    /// As `settled.sql` orders them.
    fn try_from((applied, rejected, dead): (i64, i64, i64)) -> Result<Self, Self::Error> {
        Ok(Self {
            applied: applied.try_into()?,
            rejected: rejected.try_into()?,
            dead_letters: dead.try_into()?,
        })
    }
}

/// What the books say of themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs {
    pub(crate) events: i64,
    pub(crate) entries: i64,
    /// Events that have not exactly one debit and one credit, of the same amount.
    pub(crate) unbalanced: i64,
}

/// What they say of the events that were produced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// Never entered.
    pub(crate) missing: i64,
    /// Entered more than once.
    pub(crate) doubled: i64,
    /// Entered with another account or amount.
    pub(crate) wrong: i64,
    /// Entered although they had to be refused.
    pub(crate) undue: i64,
    /// In the books, but never produced here.
    pub(crate) foreign_events: i64,
    /// Refused, and in the inbox as rejected.
    pub(crate) refused: i64,
}

impl From<(i64, i64, i64)> for Pairs {
    /// As `pairs.sql` orders them.
    fn from((events, entries, unbalanced): (i64, i64, i64)) -> Self {
        Self {
            events,
            entries,
            unbalanced,
        }
    }
}

impl From<((i64, i64, i64, i64, i64), i64)> for Comparison {
    /// As `compare.sql` orders them, and what `refused.sql` found.
    fn from(found: ((i64, i64, i64, i64, i64), i64)) -> Self {
        let ((missing, doubled, wrong, undue, foreign_events), refused) = found;
        Self {
            missing,
            doubled,
            wrong,
            undue,
            foreign_events,
            refused,
        }
    }
}

/// The auditor's report.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    pub(crate) pairs: Pairs,
    pub(crate) comparison: Option<Comparison>,
    /// What does not balance, in words.
    pub(crate) complaints: Vec<String>,
}

impl Audit {
    pub(crate) fn balanced(&self) -> bool {
        self.complaints.is_empty()
    }
}

/// Audits the books, against what was produced where that is known. `settled` is what was settled since
/// producing began.
pub(crate) async fn audit<B: Books>(
    books: &B,
    consumer: &str,
    record: Option<&Record>,
    settled: Settled,
) -> anyhow::Result<Audit> {
    let pairs = books.pairs().await?;
    let mut complaints = Vec::new();
    let mut complain = |what: &str, found: i64, expected: u64| {
        if u64::try_from(found) != Ok(expected) {
            complaints.push(format!("{what}: {found}, and it must be {expected}"));
        }
    };
    complain(
        "events without exactly one debit and one equal credit",
        pairs.unbalanced,
        0,
    );
    let mut comparison = None;
    if let Some(record) = record {
        let compared = books.compare(consumer, &record.events).await?;
        complain("events missing from the books", compared.missing, 0);
        complain("events entered more than once", compared.doubled, 0);
        complain("events entered wrongly", compared.wrong, 0);
        complain("refused events in the books", compared.undue, 0);
        complain(
            "refused events recorded as rejected",
            compared.refused,
            record.refused,
        );
        complain(
            "dead letters",
            i64::try_from(settled.dead_letters)?,
            record.malformed,
        );
        comparison = Some(compared);
    }
    Ok(Audit {
        pairs,
        comparison,
        complaints,
    })
}
