//! What every store must do, as tests.
//!
//! Implement [`Fixture`] for a database and name it:
//!
//! ```ignore
//! oneffect_core::store_contract!(OnPostgres);
//! // with arguments for #[tokio::test]:
//! oneffect_core::store_contract!(InMemory, (start_paused = true));
//! ```

pub mod clauses;
#[allow(
    clippy::expect_used,
    reason = "panicking is how a clause says that it is broken"
)]
mod support;
pub use support::ageless;

use std::error::Error;
use std::future::Future;
use std::time::SystemTime;

use bytes::Bytes;

use crate::delivery::Headers;
use crate::event_key::EventKey;
use crate::store::Store;

/// What a store lends to a handler.
pub type ConnectionOf<F> = <<F as Fixture>::Store as Store>::Connection;

/// A database that a store is tested on: its inbox, and one table of effects without any constraint.
pub trait Fixture: Sized {
    /// The store under test.
    type Store: Store;

    /// Whether units run at the same time, and wait for one another's keys.
    const CONCURRENT_UNITS: bool;
    /// Whether a failed statement aborts its transaction. Where it does not, a swallowed error
    /// takes nothing along.
    const ABORTS_ON_ERROR: bool;

    /// A database of its own for one test, migrated. `None` skips the test, when the database is
    /// not there; say so first.
    fn fresh() -> impl Future<Output = Option<Self>>;

    /// The store under test; the same each time.
    fn store(&self) -> Self::Store;

    /// Writes a row into the table of effects, as a handler would.
    fn write_effect(connection: &mut ConnectionOf<Self>, effect: &str) -> impl Future<Output = ()>;

    /// All committed effects.
    fn effects(&self) -> impl Future<Output = Vec<String>>;

    /// Runs a statement that fails for a reason of its own (a bad value), and hands back the error.
    fn fail_statement(
        connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Box<dyn Error + Send + Sync>>;

    /// Ends the transaction behind the store's back, as no handler should.
    fn end_transaction(
        connection: &mut ConnectionOf<Self>,
        how: Ending,
    ) -> impl Future<Output = ()>;

    /// All dead letters, in any order.
    fn dead_letters(&self) -> impl Future<Output = Vec<StoredLetter>>;

    /// How many connections of the store are in a transaction and not at work.
    fn idle_in_transaction(&self) -> impl Future<Output = usize>;

    /// Sets the database's clock, for all its sessions. It may stand from there on, or go on.
    fn set_clock(&self, now: SystemTime) -> impl Future<Output = ()> {
        let _ = now;
        async { panic!("this store has no clock that can be set") }
    }

    /// How many event keys the inbox holds, of all consumers, those below the floor included.
    fn remembered(&self) -> impl Future<Output = usize> {
        async { panic!("nobody can say what this store remembers") }
    }
}

/// How a transaction is ended behind the store's back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// COMMIT, and then BEGIN.
    CommitAndBegin,
}

/// A dead letter as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in DeadLetter")]
pub struct StoredLetter {
    pub kind: String,
    pub event: Option<EventKey>,
    pub source: String,
    pub key: Option<Bytes>,
    pub payload: Option<Bytes>,
    pub headers: Headers,
    /// Seconds since 1970.
    pub published_at: Option<u64>,
    pub attempts: u32,
    pub error: String,
    /// How often it was set aside.
    pub deliveries: u32,
}

/// Writes a `#[tokio::test]` for each clause of [`Store`](crate::Store)'s contract. Takes the
/// [`Fixture`](crate::testing::store_contract::Fixture), and in brackets what `#[tokio::test]` takes.
#[macro_export]
macro_rules! store_contract {
    ($fixture:ty) => {
        $crate::store_contract!($fixture, ());
    };
    ($fixture:ty, $tokio:tt) => {
        $crate::store_contract! { @clauses $fixture, $tokio,
            a_key_is_a_duplicate_once_a_unit_that_claimed_it_has_committed
            what_is_rolled_back_leaves_no_trace
            of_two_units_that_claim_one_key_the_loser_waits_for_the_winner
            the_loser_is_fresh_when_the_winner_rolls_back
            the_loser_is_fresh_when_the_winner_is_dropped
            the_loser_is_fresh_when_the_winner_gives_its_claim_back
            a_key_that_is_held_for_too_long_is_busy
            overlapping_batches_in_opposite_order_do_not_deadlock
            a_unit_dropped_at_any_await_point_leaves_nothing_or_all
            a_charge_dropped_at_any_await_point_leaves_the_store_usable
            a_swallowed_error_is_not_taken_for_a_commit
            a_handler_that_ends_the_transaction_is_unmasked
            undoing_a_savepoint_leaves_the_rest
            a_savepoint_mends_a_failed_statement
            a_released_savepoint_keeps_its_writes
            ids_are_told_apart_by_their_bytes
            tenants_and_consumers_tell_keys_apart
            a_consumer_keeps_its_number
            each_verdict_belongs_to_its_key
            a_large_batch_is_claimed_whole
            claims_given_back_leave_the_others
            outcomes_come_back_with_the_duplicate
            a_reply_comes_back_byte_for_byte_with_every_duplicate
            a_reply_commits_with_its_unit_or_not_at_all
            another_fingerprint_under_a_settled_key_is_a_mismatch
            fingerprints_of_different_settings_are_not_compared
            a_mismatch_says_what_became_of_the_first_and_leaves_it
            each_fingerprint_belongs_to_its_key
            a_claim_that_is_rolled_back_leaves_no_fingerprint
            attempts_are_durable_and_come_back_with_the_claim
            attempts_of_a_settled_event_are_forgotten
            an_attempt_is_charged_whatever_its_error_says
            a_dead_letter_keeps_everything
            a_dead_letter_that_is_set_aside_again_counts_once_more
            a_dead_letter_commits_with_its_unit_or_not_at_all
            a_dead_letter_can_be_written_whatever_its_time
            ages_of_duplicates_add_up
            what_another_process_has_started_is_not_noted_again
            an_own_start_that_says_more_than_company_is_not_noted_again
            a_start_is_put_over_what_is_there
            a_process_forgets_only_its_own_starts
            a_start_is_forgotten_with_the_unit_or_not_at_all
            a_start_and_a_claim_are_not_in_each_others_way
            starts_are_of_one_tenant_and_one_consumer
            a_start_noted_and_dropped_at_any_await_point_leaves_the_store_usable
            a_stored_letter_is_shown_whole
            a_cut_letter_says_what_it_lacks
            letters_are_listed_in_order_and_as_the_filter_says
            a_discarded_letter_is_gone_and_its_event_stays_dead
            what_cannot_be_redriven_is_not_marked
            only_a_letter_that_is_marked_and_due_is_taken
            a_letter_behind_another_of_its_lane_is_not_taken
            a_letter_that_another_unit_has_is_not_taken
            a_redriven_letter_goes_with_its_effect_or_stays
            only_a_row_of_that_outcome_is_taken_back
            a_rival_of_a_redrive_waits_for_it
            a_row_that_is_taken_back_elsewhere_is_busy
            letters_are_counted_for_each_consumer
            a_failed_redrive_leaves_one_letter_with_its_last_error
            retry_rows_of_settled_events_are_swept_away
            a_failed_statement_is_the_events
        }
    };
    (@clauses $fixture:ty, $tokio:tt, $($clause:ident)+) => {
        $(
            #[tokio::test $tokio]
            async fn $clause() {
                $crate::testing::store_contract::clauses::$clause::<$fixture>().await;
            }
        )+
    };
}

/// As [`store_contract!`], for the clauses about days. They set the clock of the database.
#[macro_export]
macro_rules! days_contract {
    ($fixture:ty) => {
        $crate::days_contract!($fixture, ());
    };
    ($fixture:ty, $tokio:tt) => {
        $crate::store_contract! { @clauses $fixture, $tokio,
            a_duplicate_across_midnight_is_a_duplicate
            of_two_units_on_either_side_of_midnight_one_is_fresh
            an_own_day_stays_what_it_is_whatever_the_clock_says
            below_the_floor_nothing_is_fresh
            a_unit_that_commits_below_the_floor_leaves_nothing_fresh
            an_event_whose_day_is_forgotten_while_it_fails_is_too_late
            a_late_event_as_new_is_filed_once
            a_day_too_far_ahead_is_refused_and_nothing_claimed
            the_floor_only_rises
            what_is_below_the_floor_is_gone_after_maintenance
            maintenance_may_be_raced_and_dropped_at_any_await_point
            each_verdict_belongs_to_its_claim_whatever_its_day
            claims_of_every_kind_are_given_back_and_recorded
            a_day_beside_the_id_counts_where_the_claim_has_one
            the_age_of_a_duplicate_is_by_the_clock_of_the_database
            days_from_elsewhere_are_refused
        }
    };
}
