//! How large the inbox becomes: PostgreSQL's storage formats, and how full its pages get.

use oneffect_core::{InboxLoad, InboxSize, RowSize};

use crate::store::Postgres;

/// What a page holds, its header aside.
const PAGE: f64 = 8192.0 - 24.0;
const PAGE_BYTES: usize = 8192 - 24;
/// And of a B-tree's, its special space aside.
const INDEX_PAGE: f64 = PAGE - 16.0;

/// How full the pages of an index get: splits at the right end leave this much, as its fillfactor
/// says, and splits anywhere ln 2, as in every B-tree.
const FULL_IN_ORDER: f64 = 0.9;
const FULL_AT_RANDOM: f64 = 0.69;

/// A tuple's header, with its bitmap of nulls, and what points to it.
const TUPLE_HEADER: usize = 24;
const ITEM_POINTER: usize = 4;
const INDEX_HEADER: usize = 8;

/// From this size on the server moves values out of the row, in pieces of the second, of which a
/// page holds four, and leaves the third in their place.
const TOAST_FROM: usize = 2032;
const TOAST_PIECE: usize = 1996;
const TOAST_POINTER: usize = 18;
const TOAST_ROW: usize = TUPLE_HEADER + 12;

impl Postgres {
    /// How large the inbox becomes under that load. For replies that do not compress, and before
    /// anything is vacuumed: a reply is written after its row was, and leaves a dead version of it.
    pub fn inbox_size(load: InboxLoad) -> InboxSize {
        let plain = tuple(&load, None);
        let index = index_entry(&load);
        let share = if load.reply > 0 {
            load.reply_share
        } else {
            0.0
        };
        let (answered, out_of_line) = with_reply(&load);
        let row = RowSize {
            table: heap(plain) + share * (heap(answered) + out_of_line),
            // The new version stands in another page as a rule, and has an entry of its own.
            index: index * (1.0 + share),
        };
        InboxSize::new(load, row, days_kept(&load))
    }
}

/// A day goes once it is before the window; a period once the one behind it is.
fn days_kept(load: &InboxLoad) -> u32 {
    let period = if load.ids.own_day {
        1
    } else {
        load.days.div_ceil(4).max(1)
    };
    load.days.saturating_add(period)
}

/// Bytes of a row with its header, aligned.
fn tuple(load: &InboxLoad, reply: Option<usize>) -> usize {
    // recorded_at, consumer, day, outcome
    let mut length = 8 + 4 + 4 + 2;
    let fingerprint = load.fingerprints.then_some(17);
    for bytes in [Some(load.ids.bytes), Some(load.tenant), fingerprint, reply] {
        length = bytes.map_or(length, |bytes| with_value(length, bytes));
    }
    aligned(TUPLE_HEADER + length, 8)
}

/// A value of up to 126 bytes has a header of one; a longer one of four, aligned.
fn with_value(length: usize, bytes: usize) -> usize {
    if bytes <= 126 {
        length + 1 + bytes
    } else {
        aligned(length, 4) + 4 + bytes
    }
}

/// Bytes of a row with its reply, and what is kept of it out of line.
fn with_reply(load: &InboxLoad) -> (usize, f64) {
    let whole = tuple(load, Some(load.reply));
    if whole <= TOAST_FROM {
        return (whole, 0.0);
    }
    let in_row = tuple(load, Some(TOAST_POINTER - 1));
    // An object id and a number.
    let entry = page_share(
        aligned(INDEX_HEADER + 8, 8) + ITEM_POINTER,
        INDEX_PAGE * FULL_IN_ORDER,
    );
    let pieces = pieces(load.reply);
    (
        in_row,
        pages_for(&pieces) * 8192.0 + float(pieces.len()) * entry,
    )
}

/// What a reply is cut into: bytes of each piece's row, and what points to it.
fn pieces(reply: usize) -> Vec<usize> {
    let row = |bytes: usize| aligned(TOAST_ROW + bytes, 8) + ITEM_POINTER;
    let mut pieces = vec![row(TOAST_PIECE); reply / TOAST_PIECE];
    if !reply.is_multiple_of(TOAST_PIECE) {
        pieces.push(row(reply % TOAST_PIECE));
    }
    pieces
}

/// Pages that such replies take each, on average. Pieces are put down one after the other, so what
/// is left of a page is lost when the next one does not fit.
fn pages_for(pieces: &[usize]) -> f64 {
    const REPLIES: usize = 64;
    let (mut pages, mut left) = (0, 0);
    for _ in 0..REPLIES {
        for piece in pieces {
            if left < *piece {
                (pages, left) = (pages + 1, PAGE_BYTES);
            }
            left -= piece;
        }
    }
    float(pages) / float(REPLIES)
}

/// Bytes of the heap that a tuple takes: pages hold whole ones.
fn heap(tuple: usize) -> f64 {
    page_share(tuple + ITEM_POINTER, PAGE)
}

fn index_entry(load: &InboxLoad) -> f64 {
    let ids = with_value(0, load.ids.bytes);
    let key = aligned(with_value(ids, load.tenant), 4) + 4 + 4;
    let full = if load.ids.ordered {
        FULL_IN_ORDER
    } else {
        FULL_AT_RANDOM
    };
    page_share(
        aligned(INDEX_HEADER + key, 8) + ITEM_POINTER,
        INDEX_PAGE * full,
    )
}

/// A whole page's bytes, shared by what it holds.
fn page_share(bytes: usize, room: f64) -> f64 {
    8192.0 / (room / float(bytes)).floor().max(1.0)
}

fn aligned(length: usize, to: usize) -> usize {
    length.next_multiple_of(to)
}

#[allow(clippy::cast_precision_loss, reason = "sizes of rows are small")]
fn float(number: usize) -> f64 {
    number as f64
}
