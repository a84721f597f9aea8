//! What every source must do, as tests.
//!
//! Implement [`Fixture`] for a broker and name it:
//!
//! ```ignore
//! oneffect_core::source_contract!(OnKafka);
//! // with arguments for #[tokio::test]:
//! oneffect_core::source_contract!(InMemory, (start_paused = true));
//! ```

pub mod clauses;
mod reader;

use std::future::Future;
use std::time::Duration;

use super::message::Message;
use crate::source::Source;

/// A broker that a source is tested on: one topic or queue, and one group that reads it.
pub trait Fixture: Sized {
    /// The source under test.
    type Source: Source;

    /// Whether what [`Fixture::produce`] sends has an order: a partition, a FIFO message group.
    const ORDERED: bool;
    /// Whether deliveries carry how often they were received.
    const COUNTS_RECEIVES: bool;
    /// Whether one delivery can be handed out again while the source goes on. A log cannot.
    const HANDS_OUT_AGAIN: bool;
    /// Whether a message can have no payload, which is not an empty one.
    const TOMBSTONES: bool;
    /// Whether a payload can have no bytes.
    const EMPTY_PAYLOADS: bool;
    /// Whether headers are a list, which may repeat names and hold nulls, and not a map.
    const HEADER_LISTS: bool;
    /// After how long a source that has not handed out anything is not going to. Longer than the
    /// broker takes to hand out what it has, which the suite waits for a few times.
    const QUIET: Duration = Duration::from_secs(1);

    /// A topic or queue of its own for one test, empty and without readers. `None` skips the test,
    /// when the broker is not there; say so first.
    fn fresh() -> impl Future<Output = Option<Self>>;

    /// Sends messages one after the other, and returns when the broker has them for good. Where
    /// there is order, all go to the same partition or group.
    fn produce(&self, messages: Vec<Message>) -> impl Future<Output = ()>;

    /// Another source of the same group, not open yet. A test has one open at a time.
    fn source(&self) -> impl Future<Output = Self::Source>;

    /// Makes the open source let go of its assignments in good order and then get them back. The
    /// suite polls the source at the same time. `false` where a source keeps its assignment for
    /// life.
    fn reassign(&self) -> impl Future<Output = bool> {
        std::future::ready(false)
    }
}

/// Writes a `#[tokio::test]` for each clause of [`Source`](crate::Source)'s contract. Takes the
/// [`Fixture`](crate::testing::source_contract::Fixture), and in brackets what `#[tokio::test]`
/// takes.
#[macro_export]
macro_rules! source_contract {
    ($fixture:ty) => {
        $crate::source_contract!($fixture, ());
    };
    ($fixture:ty, $tokio:tt) => {
        $crate::source_contract! { @clauses $fixture, $tokio,
            every_delivery_belongs_to_an_assignment_that_was_announced
            an_assignment_that_comes_back_has_another_id
            what_was_not_acknowledged_comes_again_after_a_close
            what_a_crashed_source_had_comes_again
            what_was_acknowledged_does_not_come_again
            what_is_settled_before_letting_go_of_an_assignment_counts
            a_settlement_for_an_ended_assignment_changes_nothing
            a_settlement_for_an_unknown_assignment_changes_nothing
            dropping_the_future_of_next_loses_nothing
            deliveries_of_one_order_come_in_that_order
            a_paused_assignment_stays_and_gets_nothing_until_it_is_resumed
            after_stop_receiving_nothing_is_handed_out_and_settlements_count
            what_is_released_comes_again_but_not_before_its_delay
            deliveries_say_how_often_they_were_received
            payloads_and_headers_arrive_as_they_were_sent
            a_close_ends_within_its_deadline
        }
    };
    (@clauses $fixture:ty, $tokio:tt, $($clause:ident)+) => {
        $(
            #[tokio::test $tokio]
            async fn $clause() {
                $crate::testing::source_contract::clauses::$clause::<$fixture>().await;
            }
        )+
    };
}
