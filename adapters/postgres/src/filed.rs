//! Where the inbox keeps a key: in which of its two tables, and under what day.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use oneffect_core::{Day, EventKey};

use crate::keys::{Keys, columns};

/// The two tables of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// Events with a day of their own.
    Days,
    /// All others, by the period that was open.
    Open,
}

/// Units touch the two tables in this order, so that they wait for one another and not in a circle.
pub(crate) const TABLES: [Table; 2] = [Table::Days, Table::Open];

/// The statements that both tables have.
pub(crate) struct Queries {
    pub(crate) settled: String,
    pub(crate) unclaim: String,
    pub(crate) record: String,
}

static DAYS: LazyLock<Queries> = LazyLock::new(|| Queries::of(Table::Days.name()));
static OPEN: LazyLock<Queries> = LazyLock::new(|| Queries::of(Table::Open.name()));

impl Queries {
    fn of(table: &str) -> Self {
        let on = |sql: &str| sql.replace("{inbox}", table);
        Self {
            settled: on(include_str!("queries/settled.sql")),
            unclaim: on(include_str!("queries/unclaim.sql")),
            record: on(include_str!("queries/record.sql")),
        }
    }
}

impl Table {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Days => "inbox",
            Self::Open => "inbox_open",
        }
    }

    pub(crate) fn queries(self) -> &'static Queries {
        match self {
            Self::Days => &DAYS,
            Self::Open => &OPEN,
        }
    }
}

/// Where one key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filed {
    pub(crate) table: Table,
    /// The event's own, or the first of the period.
    pub(crate) day: Day,
}

/// Where a unit's keys are.
#[derive(Default)]
pub(crate) struct FiledKeys {
    keys: Keys,
    /// By the place of the claim; nowhere when it was neither claimed nor found.
    filed: Vec<Option<Filed>>,
}

impl FiledKeys {
    pub(crate) fn new(keys: Keys, filed: Vec<Option<Filed>>) -> Self {
        Self { keys, filed }
    }

    pub(crate) fn of(&self, key: &EventKey) -> Option<Filed> {
        let (id, tenant) = columns(key);
        self.filed[self.keys.place(&id, &tenant)?]
    }
}

/// The first and the last; `None` when there are none.
pub(crate) fn span(days: impl Iterator<Item = Day> + Clone) -> Option<RangeInclusive<Day>> {
    Some(days.clone().min()?..=days.max()?)
}
