//! Staged rows: typed, collected over a whole batch, written with one statement a table.

use std::any::{Any, TypeId};
use std::fmt;

use async_trait::async_trait;
use oneffect_core::StoreError;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres};

use crate::transaction::heard;
use crate::unit::PostgresUnit;

/// A row that [`Context::stage`](oneffect_core::Context::stage) takes, for one table.
///
/// Implement it with [`staged_row!`](crate::staged_row).
pub trait StagedRow: Send + Sized + 'static {
    /// The table, as SQL spells it.
    const TABLE: &'static str;
    /// Its columns, in the order in which [`StagedRow::bind`] binds them.
    const COLUMNS: &'static [&'static str];

    /// Binds one array for each column.
    fn bind(
        rows: Vec<Self>,
        insert: Query<'static, Postgres, PgArguments>,
    ) -> Query<'static, Postgres, PgArguments>;
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

            fn bind(
                rows: ::std::vec::Vec<Self>,
                insert: $crate::Insert,
            ) -> $crate::Insert {
                $(let mut $column = ::std::vec::Vec::with_capacity(rows.len());)+
                for row in rows {
                    $($column.push(row.$column);)+
                }
                insert$(.bind($column))+
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

#[async_trait]
trait AnyRow: Send {
    fn kind(&self) -> TypeId;
    fn table(&self) -> &'static str;
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
    /// Writes rows of this kind.
    async fn write(
        self: Box<Self>,
        others: Vec<PostgresRow>,
        connection: &mut PgConnection,
        named: bool,
    ) -> sqlx::Result<()>;
}

#[async_trait]
impl<R: StagedRow> AnyRow for R {
    fn kind(&self) -> TypeId {
        TypeId::of::<R>()
    }

    fn table(&self) -> &'static str {
        R::TABLE
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }

    async fn write(
        self: Box<Self>,
        others: Vec<PostgresRow>,
        connection: &mut PgConnection,
        named: bool,
    ) -> sqlx::Result<()> {
        let mut rows = Vec::with_capacity(others.len() + 1);
        rows.push(*self);
        rows.extend(
            (others.into_iter())
                .filter_map(|row| row.0.into_any().downcast::<R>().ok())
                .map(|row| *row),
        );
        let places: Vec<_> = (1..=R::COLUMNS.len()).map(|n| format!("${n}")).collect();
        let sql = format!(
            "INSERT INTO {} ({}) SELECT * FROM unnest({})",
            R::TABLE,
            R::COLUMNS.join(", "),
            places.join(", ")
        );
        let insert = sqlx::query(AssertSqlSafe(sql)).persistent(named);
        R::bind(rows, insert).execute(connection).await?;
        Ok(())
    }
}

impl PostgresUnit {
    /// One statement a table: registered tables first, in their order, then the others in the order
    /// in which they first appear; the rows of each in event order.
    pub(crate) async fn write_staged(&mut self, rows: Vec<PostgresRow>) -> Result<(), StoreError> {
        let mut tables: Vec<(TypeId, Vec<PostgresRow>)> = (self.tables.iter())
            .map(|kind| (*kind, Vec::new()))
            .collect();
        for row in rows {
            let kind = row.0.kind();
            match tables.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, rows)) => rows.push(row),
                None => tables.push((kind, vec![row])),
            }
        }
        for (_, rows) in tables {
            let mut rows = rows.into_iter();
            if let Some(first) = rows.next() {
                heard!(
                    self.transaction,
                    "staged rows",
                    first
                        .0
                        .write(rows.collect(), &mut self.transaction, self.named)
                )
                .map_err(|error| StoreError::rolled_back(self.failed(error)))?;
            }
        }
        Ok(())
    }
}
