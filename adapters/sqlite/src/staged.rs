//! Staged rows: typed, collected over a whole batch, written with one statement a table.

use std::any::{Any, TypeId};
use std::fmt;

use oneffect_core::StoreError;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Sqlite};

use crate::unit::SqliteUnit;

/// What SQLite takes in one statement, by default since 3.32.
const MOST_PARAMETERS: usize = 32_766;

/// Longer statements gain nothing.
const MOST_ROWS: usize = 500;

/// A row that [`Context::stage`](oneffect_core::Context::stage) takes, for one table.
///
/// Implement it with [`staged_row!`](crate::staged_row).
pub trait StagedRow: Send + Sync + Sized + 'static {
    /// The table, as SQL spells it.
    const TABLE: &'static str;
    /// Its columns, in the order in which [`StagedRow::bind`] binds them.
    const COLUMNS: &'static [&'static str];

    /// Binds one value for each column.
    fn bind(&self, insert: Insert) -> Insert;
}

/// Implements [`StagedRow`] for a struct: names the table, and the fields, which are the columns.
///
/// A field may be of any type that sqlx can bind.
///
/// ```
/// struct Entry {
///     account: String,
///     amount_minor: i64,
///     memo: Option<String>,
/// }
///
/// oneffect_sqlite::staged_row!(Entry in "ledger_entry" { account, amount_minor, memo });
/// ```
///
/// In the handler: `cx.stage(Entry { .. })`. The entries of a batch are written by one `INSERT` of
/// many rows.
#[macro_export]
macro_rules! staged_row {
    ($row:ident in $table:literal { $($column:ident),+ $(,)? }) => {
        impl $crate::StagedRow for $row {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [&'static str] = &[$(stringify!($column)),+];

            fn bind(&self, insert: $crate::Insert) -> $crate::Insert {
                insert$(.bind(&self.$column))+
            }
        }
    };
}

/// The statement that [`StagedRow::bind`] adds to.
pub type Insert = Query<'static, Sqlite, SqliteArguments>;

/// A staged row of any table.
pub struct SqliteRow(Box<dyn AnyRow>);

impl<R: StagedRow> From<R> for SqliteRow {
    fn from(row: R) -> Self {
        Self(Box::new(row))
    }
}

impl fmt::Debug for SqliteRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteRow").field(&self.0.table()).finish()
    }
}

trait AnyRow: Send + Sync {
    fn kind(&self) -> TypeId;
    fn table(&self) -> &'static str;
    fn as_any(&self) -> &dyn Any;
    /// The statements that write those of the rows that are of this kind.
    fn inserts(&self, rows: &[&SqliteRow]) -> Vec<Insert>;
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

    fn inserts(&self, rows: &[&SqliteRow]) -> Vec<Insert> {
        let rows: Vec<&R> = (rows.iter())
            .filter_map(|row| row.0.as_any().downcast_ref())
            .collect();
        let most = MOST_ROWS.min(MOST_PARAMETERS / R::COLUMNS.len()).max(1);
        let row_places = format!("({})", vec!["?"; R::COLUMNS.len()].join(", "));
        let inserts = rows.chunks(most).map(|chunk| {
            let sql = format!(
                "INSERT INTO {} ({}) VALUES {}",
                R::TABLE,
                R::COLUMNS.join(", "),
                vec![&*row_places; chunk.len()].join(", ")
            );
            // Statements of every other length would crowd the cache.
            let insert = sqlx::query(AssertSqlSafe(sql)).persistent(chunk.len() == most);
            chunk.iter().fold(insert, |insert, row| row.bind(insert))
        });
        inserts.collect()
    }
}

impl SqliteUnit {
    /// One statement a table: registered tables first, in their order, then the others in the order
    /// in which they first appear; the rows of each in event order.
    pub(crate) async fn write_staged(&mut self, rows: &[SqliteRow]) -> Result<(), StoreError> {
        for insert in inserts(&self.tables, rows) {
            let written = insert.execute(&mut *self.transaction).await;
            written.map_err(|error| StoreError::rolled_back(self.failed(error)))?;
        }
        Ok(())
    }
}

fn inserts(tables: &[TypeId], rows: &[SqliteRow]) -> Vec<Insert> {
    let mut tables: Vec<(TypeId, Vec<&SqliteRow>)> =
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
        Some(first.0.inserts(&rows))
    });
    written.flatten().collect()
}
