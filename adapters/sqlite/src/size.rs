//! How large the inbox becomes: SQLite's file format, and how full its pages get.

use oneffect_core::{InboxLoad, InboxSize, RowSize};

use crate::store::Sqlite;

/// A page, and what it holds beside the headers.
const PAGE: f64 = 4096.0;
const ROOM: f64 = 4096.0 - 12.0;

/// How full pages get, measured. Whether keys come in order makes no difference: SQLite spreads what
/// a page cannot hold over its neighbours before it adds one.
const FULL: f64 = 0.91;

/// From this size on the tail of a row goes to pages of its own; at least the second stays, and a
/// page takes the third.
const LOCAL_MOST: usize = 1002;
const LOCAL_LEAST: usize = 489;
const OVERFLOW_PAGE: usize = 4092;

impl Sqlite {
    /// How large the inbox becomes under that load. The file does not shrink when events are forgotten:
    /// their pages are used again.
    pub fn inbox_size(load: InboxLoad) -> InboxSize {
        let share = if load.reply > 0 {
            load.reply_share
        } else {
            0.0
        };
        let (plain, answered) = (record(&load, 0), record(&load, load.reply));
        let local = (1.0 - share) * local(plain) + share * local(answered);
        let row = RowSize {
            table: PAGE * local / (ROOM * FULL) + share * overflow(answered),
            index: PAGE * float(day_entry(&load)) / (ROOM * FULL),
        };
        InboxSize::new(load, row, load.days.saturating_add(1))
    }
}

/// Bytes of a row as a record: a header with a type for each column, and the values.
fn record(load: &InboxLoad, reply: usize) -> usize {
    let fingerprint = if load.fingerprints { 17 } else { 0 };
    let header: usize = [load.ids.bytes, load.tenant, fingerprint, reply]
        .into_iter()
        .map(type_length)
        .sum();
    // The header's own length; types of consumer, outcome, recorded_at and day.
    let header = 1 + header + 4;
    // Of those: a small number, none for 0, 4 bytes, and 2.
    let values = 1 + 4 + 2 + load.ids.bytes + load.tenant + fingerprint + reply;
    header + values
}

/// Days and the primary key, of the index that finds what is to be forgotten.
fn day_entry(load: &InboxLoad) -> usize {
    let header = 1 + 2 + type_length(load.ids.bytes) + type_length(load.tenant);
    // Its length, and what points to it.
    3 + header + 2 + 1 + load.ids.bytes + load.tenant
}

/// A blob's type says how long it is: 12 and twice its bytes, in a variable-length number.
fn type_length(bytes: usize) -> usize {
    match 12 + 2 * bytes {
        0..128 => 1,
        128..16_384 => 2,
        _ => 3,
    }
}

/// What stands in the tree itself, with its length and what points to it.
fn local(record: usize) -> f64 {
    let local = if record <= LOCAL_MOST {
        record
    } else {
        in_page(record) + 4
    };
    float(local + 4)
}

fn in_page(record: usize) -> usize {
    let local = LOCAL_LEAST + (record - LOCAL_LEAST) % OVERFLOW_PAGE;
    if local <= LOCAL_MOST {
        local
    } else {
        LOCAL_LEAST
    }
}

/// Pages of its own are whole ones.
fn overflow(record: usize) -> f64 {
    if record <= LOCAL_MOST {
        return 0.0;
    }
    let pages = (record - in_page(record)).div_ceil(OVERFLOW_PAGE);
    PAGE * float(pages)
}

#[allow(clippy::cast_precision_loss, reason = "sizes of rows are small")]
fn float(number: usize) -> f64 {
    number as f64
}
