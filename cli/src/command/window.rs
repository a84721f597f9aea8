//! `oneffect window`.

use oneffect_core::{IdShape, InboxLoad, InboxSize};
use oneffect_postgres::Postgres;
use oneffect_sqlite::Sqlite;
use serde::Serialize;

use crate::code::{Code, Unusable};
use crate::console::Console;
use crate::database::Address;
use crate::options::window::Window;

/// Bytes and rows are averages, and rounded.
#[derive(Serialize)]
struct Shown {
    store: &'static str,
    days_kept: u32,
    table_bytes_per_row: u64,
    index_bytes_per_row: u64,
    rows_a_day: u64,
    bytes_a_day: u64,
    rows: u64,
    bytes: u64,
}

/// No database is asked: of its address, only the kind counts.
pub(super) fn run(
    window: &Window,
    address: Option<&Address>,
    json: bool,
    console: &mut Console,
) -> anyhow::Result<Code> {
    let load = load(window)?;
    let (store, size) = match address {
        Some(Address::Sqlite(_)) => ("sqlite", Sqlite::inbox_size(load)),
        Some(Address::Postgres { .. }) | None => ("postgres", Postgres::inbox_size(load)),
    };
    if json {
        console.print_json(&Shown::of(store, &size))?;
    } else {
        console.print(format_args!("{size}\n"))?;
    }
    Ok(Code::Fine)
}

fn load(window: &Window) -> Result<InboxLoad, Unusable> {
    let ids = window
        .id
        .as_ref()
        .map_or_else(IdShape::uuid_v7, IdShape::like);
    let mut load = InboxLoad::new(window.rate, window.days, ids).tenant(window.tenant_bytes);
    if window.fingerprints {
        load = load.fingerprints();
    }
    load.reply = window.reply_bytes;
    load.reply_share = window.reply_share;
    load.validate().map_err(Unusable)?;
    Ok(load)
}

impl Shown {
    fn of(store: &'static str, size: &InboxSize) -> Self {
        Self {
            store,
            days_kept: size.days_kept,
            table_bytes_per_row: rounded(size.row.table),
            index_bytes_per_row: rounded(size.row.index),
            rows_a_day: rounded(size.rows_a_day()),
            bytes_a_day: rounded(size.bytes_a_day()),
            rows: rounded(size.rows()),
            bytes: rounded(size.bytes()),
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and no size is below nothing"
)]
fn rounded(number: f64) -> u64 {
    number.round() as u64
}
