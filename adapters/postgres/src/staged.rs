//! Staged rows: typed, collected over a whole batch, written with one statement a table.

use std::any::{Any, TypeId};
use std::fmt;

use oneffect_core::StoreError;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres};

use crate::transaction::heard;
use crate::unit::PostgresUnit;

/// A row that [`Context::stage`](oneffect_core::Context::stage) takes, for one table.
///
/// Implement it with [`staged_row!`](crate::staged_row).
pub trait StagedRow: Send + Sync + Sized + 'static {
    /// The table, as SQL spells it.
    const TABLE: &'static str;
    /// Its columns, in the order in which [`StagedRow::bind`] binds them.
    const COLUMNS: &'static [&'static str];

    /// Binds one array for each column.
    fn bind(rows: &[&Self], insert: Insert) -> Insert;
}

/// Implements [`StagedRow`] for a struct: names the table, and the fields, which are the columns.
///
/// A field may be of any type of which sqlx can bind an array.
///
/// ```
/// struct Entry {
///     account: String,
///     amount_minor: i64,
///     memo: Option<String>,
/// }
///
/// oneffect_postgres::staged_row!(Entry in "ledger_entry" { account, amount_minor, memo });
/// ```
///
/// In the handler: `cx.stage(Entry { .. })`. All entries of a batch are written by one
/// `INSERT .. SELECT .. FROM unnest(..)`, and a handler that only stages never waits for the database.
#[macro_export]
macro_rules! staged_row {
    ($row:ident in $table:literal { $($column:ident),+ $(,)? }) => {
        impl $crate::StagedRow for $row {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [&'static str] = &[$(stringify!($column)),+];

            fn bind(rows: &[&Self], insert: $crate::Insert) -> $crate::Insert {
                insert$(
                    .bind(rows.iter().map(|row| &row.$column).collect::<::std::vec::Vec<_>>())
                )+
            }
        }
    };
}

/// The statement that [`StagedRow::bind`] completes.
pub type Insert = Query<'static, Postgres, PgArguments>;

/// A staged row of any table.
pub struct PostgresRow(Box<dyn AnyRow>);

impl<R: StagedRow> From<R> for PostgresRow {
    fn from(row: R) -> Self {
        Self(Box::new(row))
    }
}

impl fmt::Debug for PostgresRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresRow").field(&self.0.table()).finish()
    }
}

trait AnyRow: Send + Sync {
    fn kind(&self) -> TypeId;
    fn table(&self) -> &'static str;
    fn as_any(&self) -> &dyn Any;
    /// The statement that writes those of the rows that are of this kind.
    fn insert(&self, rows: &[&PostgresRow]) -> Insert;
}

impl<R: StagedRow> AnyRow for R {
    fn kind(&self) -> TypeId {
        TypeId::of::<R>()
    }

    fn table(&self) -> &'static str {
        R::TABLE
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn insert(&self, rows: &[&PostgresRow]) -> Insert {
        let rows: Vec<&R> = (rows.iter())
            .filter_map(|row| row.0.as_any().downcast_ref())
            .collect();
        let places: Vec<_> = (1..=R::COLUMNS.len()).map(|n| format!("${n}")).collect();
        let sql = format!(
            "INSERT INTO {} ({}) SELECT * FROM unnest({})",
            R::TABLE,
            R::COLUMNS.join(", "),
            places.join(", ")
        );
        R::bind(&rows, sqlx::query(AssertSqlSafe(sql)))
    }
}

impl PostgresUnit {
    /// One statement a table: registered tables first, in their order, then the others in the order
    /// in which they first appear; the rows of each in event order.
    pub(crate) async fn write_staged(&mut self, rows: &[PostgresRow]) -> Result<(), StoreError> {
        for insert in inserts(&self.tables, rows) {
            let insert = insert.persistent(self.named);
            heard!(
                self.transaction,
                "staged rows",
                insert.execute(&mut *self.transaction)
            )
            .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        }
        Ok(())
    }
}

fn inserts(tables: &[TypeId], rows: &[PostgresRow]) -> Vec<Insert> {
    let mut tables: Vec<(TypeId, Vec<&PostgresRow>)> =
        tables.iter().map(|kind| (*kind, Vec::new())).collect();
    for row in rows {
        let kind = row.0.kind();
        match tables.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, rows)) => rows.push(row),
            None => tables.push((kind, vec![row])),
        }
    }
    let written = tables.into_iter().filter_map(|(_, rows)| {
        let first = rows.first()?;
        Some(first.0.insert(&rows))
    });
    written.collect()
}
