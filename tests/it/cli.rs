//! The command line, on each database: what it prints, what its JSON says, how it ends.

mod dead_letters;
mod doctor;
mod help;
mod inbox;
mod inspect;
mod migrate;
mod window;

use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex, PoisonError};

use oneffect_cli::{Code, Console, run};
use oneffect_core::testing::store_contract::Fixture;
use oneffect_postgres::PostgresConfig;
use serde_json::Value;

use crate::store_contract::postgres::OnPostgres;
use crate::store_contract::sqlite::OnSqlite;

/// A database that the command line can be pointed at.
trait Operated: Fixture {
    async fn unmigrated() -> Option<Self>;

    /// The options that name it.
    fn options(&self) -> Vec<String>;

    /// Runs SQL as another program would.
    async fn execute(&self, sql: &str) -> Result<(), sqlx::Error>;
}

impl Operated for OnPostgres {
    async fn unmigrated() -> Option<Self> {
        Self::unmigrated(PostgresConfig::default()).await
    }

    fn options(&self) -> Vec<String> {
        ["--database", &self.url, "--schema", &self.schema]
            .map(str::to_owned)
            .to_vec()
    }

    async fn execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
            .execute(&mut *connection)
            .await;
        if done.is_err() {
            sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
        }
        done.map(|_| ())
    }
}

impl Operated for OnSqlite {
    async fn unmigrated() -> Option<Self> {
        Some(Self::unmigrated().await)
    }

    fn options(&self) -> Vec<String> {
        ["--database", self.path.to_str().unwrap()]
            .map(str::to_owned)
            .to_vec()
    }

    async fn execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let done = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
            .execute(&mut *connection)
            .await;
        if done.is_err() {
            sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
        }
        done.map(|_| ())
    }
}

/// Each of the tests, on each database.
macro_rules! on_each_database {
    ($($test:ident,)*) => {
        mod postgres {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test::<crate::store_contract::postgres::OnPostgres>().await;
                }
            )*
        }
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() {
                    super::$test::<crate::store_contract::sqlite::OnSqlite>().await;
                }
            )*
        }
    };
}
use on_each_database;

/// How a command ended, and what it wrote.
#[derive(Debug)]
struct Ran {
    code: Code,
    out: String,
    err: String,
}

impl Ran {
    /// The objects that it printed, one a line.
    fn lines(&self) -> Vec<Value> {
        let lines = self.out.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The one object that it printed.
    fn json(&self) -> Value {
        let [only] = &self.lines()[..] else {
            panic!("not one line: {self:?}")
        };
        only.clone()
    }
}

/// Runs a command on a database, with nobody to ask.
async fn oneffect(database: &impl Operated, command: &[&str]) -> Ran {
    run_with(database.options(), command, None).await
}

/// Runs a command on a database, before a person who answers.
async fn oneffect_asked(database: &impl Operated, command: &[&str], answer: &'static str) -> Ran {
    run_with(database.options(), command, Some(answer)).await
}

async fn run_with(options: Vec<String>, command: &[&str], answer: Option<&'static str>) -> Ran {
    let (out, err) = (Written::default(), Written::default());
    let mut console = Console::new(out.clone(), err.clone());
    if let Some(answer) = answer {
        console = console.answered_by(Cursor::new(answer));
    }
    let command = command.iter().copied().map(str::to_owned);
    let args = ["oneffect".to_owned()]
        .into_iter()
        .chain(options)
        .chain(command);
    let code = run(args, &mut console).await;
    Ran {
        code,
        out: out.text(),
        err: err.text(),
    }
}

/// What a console wrote.
#[derive(Clone, Debug, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(bytes.clone()).unwrap()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
