//! Dead letters once they are stored: lists, marks, and the unit that redrives one.

use std::time::Duration;

use bytes::Bytes;

use super::bench;
use crate::claim::Claim;
use crate::day::DaysFrom;
use crate::dead_letter::{DeadLetter, DeadLetterBounds, DeadLetterKind};
use crate::delivery::{Order, Position};
use crate::event_key::{EventKey, Tenant};
use crate::fingerprint::Fingerprint;
use crate::letters::{DeadLetters, Letter, LetterFilter, LetterId, RedriveAs, Refusal, Requested};
use crate::store::{Prior, Reopen, Settled, Store, StoreError, Unit, Verdict};
use crate::testing::store_contract::Fixture;
use crate::testing::store_contract::support::{
    Bench, UnitOf, delivery, fresh, headers, key, let_the_rival_wait, letter,
};

/// A letter of an event in the lane of a record key.
fn letter_of(event: &EventKey, lane: &'static str) -> DeadLetter {
    let mut delivery = delivery(1, Some(b"{}"));
    delivery.key = Some(Bytes::from_static(lane.as_bytes()));
    let kind = DeadLetterKind::Exhausted;
    DeadLetter::new(&delivery, Some(event.clone()), kind, 3, "it failed")
}

impl<F: Fixture> Bench<F> {
    /// Sets an event aside as a consumer does: its letter and its inbox row in one unit.
    async fn set_aside_dead(&self, event: &EventKey, lane: &'static str) -> LetterId {
        let mut unit = self.begin().await;
        let claim = Claim::new(event.clone());
        let verdicts = unit.claim(std::slice::from_ref(&claim)).await;
        assert_eq!(verdicts.expect("a claim is answered"), fresh(1));
        let dead = (event.clone(), Settled::Dead);
        unit.record(&[dead]).await.expect("the outcome is recorded");
        unit.set_aside(&[letter_of(event, lane)])
            .await
            .expect("the letter is written");
        unit.commit().await.expect("the unit commits");
        let ids = self.ids(&LetterFilter::default()).await;
        *ids.last().expect("there is a letter")
    }

    async fn ids(&self, filter: &LetterFilter) -> Vec<LetterId> {
        let letters = self.store.list_letters(filter).await;
        let letters = letters.expect("letters are listed");
        letters.iter().map(|letter| letter.id).collect()
    }

    async fn mark(&self, filter: &LetterFilter) {
        let requested = self.store.request_redrive(filter, RedriveAs::Itself).await;
        assert!(
            requested
                .expect("the request is answered")
                .refused
                .is_empty()
        );
    }

    async fn take(&self, id: LetterId) -> (UnitOf<F>, Option<Letter>) {
        let mut unit = self.begin().await;
        let letter = unit.take_letter(id).await.expect("the take is answered");
        (unit, letter)
    }

    /// Whether a unit gets the letter now.
    async fn can_take(&self, id: LetterId) -> bool {
        let (unit, letter) = self.take(id).await;
        unit.rollback().await;
        letter.is_some()
    }

    async fn settled(&self, event: &EventKey) -> Option<Settled> {
        match self.look_one(event).await {
            Verdict::Duplicate { settled, .. } => Some(settled),
            _ => None,
        }
    }
}

/// [`DeadLetters::show_letter`]: what a redrive needs comes back as it was.
pub async fn a_stored_letter_is_shown_whole<F: Fixture>() {
    let bench = bench!(F);
    let event = EventKey {
        tenant: Tenant::new("acme").expect("a usable tenant"),
        ..key("x\0y")
    };
    let mut whole = delivery(7, Some(b"\xff\0{"));
    whole.key = Some(Bytes::from_static(b"\0k"));
    whole.headers = headers();
    let mut queued = delivery(0, Some(b""));
    queued.position = Position::Queue {
        queue: "orders".into(),
        message_id: "m".into(),
    };
    queued.order = Order::Group(Bytes::from_static(b"g\0"));
    queued.deduplication_id = Some("d".into());
    let mut unordered = queued.clone();
    unordered.order = Order::None;
    unordered.payload = None;
    let kind = DeadLetterKind::Mismatch;
    let print = |content: &[u8]| Fingerprint::Payload.of(Some(content));
    let mut mismatch = DeadLetter::new(&whole, Some(event), kind, 5, "it\nfailed");
    mismatch = mismatch.with_fingerprint(print(b"1"));
    mismatch.settled_fingerprint = print(b"2");
    let poison = |delivery| DeadLetter::new(delivery, None, DeadLetterKind::Poison, 0, "no id");
    let letters = [mismatch, poison(&queued), poison(&unordered)];

    for letter in letters {
        bench.set_aside(std::slice::from_ref(&letter)).await;
        let ids = bench.ids(&LetterFilter::default()).await;
        let id = *ids.last().expect("there is a letter");
        let stored = bench.store.show_letter(id).await.expect("it is shown");
        let stored = stored.expect("it is there");
        assert_eq!((stored.id, &*stored.consumer), (id, "ledger"));
        assert_eq!((stored.deliveries, stored.redrive), (1, None));
        assert_eq!(format!("{:?}", stored.letter), format!("{letter:?}"));
    }
    let none = bench.store.show_letter(LetterId(1 << 40)).await;
    assert!(none.expect("the question is answered").is_none());
}

/// What was too large is cut, and both the list and the letter say so.
pub async fn a_cut_letter_says_what_it_lacks<F: Fixture>() {
    let bench = bench!(F);
    let mut large = delivery(1, Some(b"0123456789"));
    large.key = Some(Bytes::from_static(b"0123"));
    large.headers = [("a", "0123456789")].into_iter().collect();
    let bounds = DeadLetterBounds::default().payload(4).key(2).headers(5);
    let whole = DeadLetter::new(&large, None, DeadLetterKind::Poison, 0, "no id");
    let cut = whole.within(&bounds);

    bench.set_aside(std::slice::from_ref(&cut)).await;

    let list = bench.store.list_letters(&LetterFilter::default()).await;
    let [summary] = &list.expect("letters are listed")[..] else {
        panic!("there is one letter")
    };
    assert!(summary.is_cut);
    assert_eq!(summary.payload_len, Some(10));
    let stored = bench.store.show_letter(summary.id).await;
    let stored = stored.expect("it is shown").expect("it is there").letter;
    assert_eq!(stored.cut, cut.cut);
    assert_eq!(stored.payload.as_deref(), Some(&b"0123"[..]));
}

/// [`DeadLetters`] clauses 1 and 2.
pub async fn letters_are_listed_in_order_and_as_the_filter_says<F: Fixture>() {
    let bench = bench!(F);
    let acme = EventKey {
        tenant: Tenant::new("acme").expect("a usable tenant"),
        ..key("a")
    };
    for (event, lane) in [(&key("a"), "k"), (&key("b"), "l"), (&acme, "k")] {
        bench.set_aside(&[letter_of(event, lane)]).await;
    }
    let poison = delivery(9, Some(b"{"));
    let words = "100% off_by one\nIt IS broken";
    bench
        .set_aside(&[DeadLetter::new(
            &poison,
            None,
            DeadLetterKind::Poison,
            0,
            words,
        )])
        .await;
    let other = bench
        .store
        .open("other", DaysFrom::Id)
        .await
        .expect("it opens");
    let mut unit = bench.begin_for(other).await;
    unit.set_aside(&[letter(1)]).await.expect("set aside");
    unit.commit().await.expect("the unit commits");

    let all = bench.ids(&LetterFilter::default()).await;
    assert_eq!(all.len(), 5);
    assert!(all.is_sorted());
    let place = |id: &LetterId| all.iter().position(|other| other == id);
    let found = async |change: &dyn Fn(&mut LetterFilter)| {
        let mut filter = LetterFilter::default();
        change(&mut filter);
        let ids = bench.ids(&filter).await;
        ids.iter().filter_map(place).collect::<Vec<_>>()
    };

    assert_eq!(
        found(&|f| f.consumer = Some("ledger".into())).await,
        [0, 1, 2, 3]
    );
    assert_eq!(found(&|f| f.consumer = Some("nobody".into())).await, [0; 0]);
    assert_eq!(found(&|f| f.ids = vec![all[3], all[1]]).await, [1, 3]);
    assert_eq!(
        found(&|f| f.kinds = vec![DeadLetterKind::Exhausted]).await,
        [0, 1, 2]
    );
    let both = vec![DeadLetterKind::Poison, DeadLetterKind::Mismatch];
    assert_eq!(found(&|f| f.kinds.clone_from(&both)).await, [3, 4]);
    assert_eq!(
        found(&|f| f.key = Some(Bytes::from_static(b"k"))).await,
        [0, 2]
    );
    assert_eq!(found(&|f| f.event_id = Some(key("a").id)).await, [0, 2]);
    assert_eq!(found(&|f| f.tenant = Some(acme.tenant.clone())).await, [2]);
    assert_eq!(found(&|f| f.tenant = Some(Tenant::default())).await, [0, 1]);
    assert_eq!(
        found(&|f| f.source = Some("transfers".into())).await.len(),
        5
    );
    assert_eq!(found(&|f| f.error = Some("is BROKEN".into())).await, [3]);
    assert_eq!(found(&|f| f.error = Some("100%".into())).await, [3]);
    assert_eq!(found(&|f| f.error = Some("off-by".into())).await, [0; 0]);
    assert_eq!(found(&|f| f.after = Some(all[2])).await, [3, 4]);
    assert_eq!(found(&|f| f.limit = Some(2)).await, [0, 1]);
    let page = |f: &mut LetterFilter| {
        f.after = Some(all[0]);
        f.limit = Some(1);
        f.event_id = Some(key("a").id);
    };
    assert_eq!(found(&page).await, [2]);

    let list = bench.store.list_letters(&LetterFilter::one(all[2])).await;
    let first_at = list.expect("letters are listed")[0].first_at;
    let later = first_at + Duration::from_hours(1);
    assert!(found(&|f| f.since = Some(first_at)).await.contains(&2));
    assert!(!found(&|f| f.until = Some(first_at)).await.contains(&2));
    assert_eq!(found(&|f| f.since = Some(later)).await, [0; 0]);
    assert_eq!(found(&|f| f.until = Some(later)).await.len(), 5);
}

/// [`DeadLetters::discard_letters`]: the event stays settled as dead.
pub async fn a_discarded_letter_is_gone_and_its_event_stays_dead<F: Fixture>() {
    let bench = bench!(F);
    let first = bench.set_aside_dead(&key("a"), "k").await;
    let second = bench.set_aside_dead(&key("b"), "k").await;

    let gone = bench.store.discard_letters(&LetterFilter::one(first)).await;

    assert_eq!(gone.expect("letters are discarded"), 1);
    assert_eq!(bench.ids(&LetterFilter::default()).await, [second]);
    assert_eq!(bench.settled(&key("a")).await, Some(Settled::Dead));
    let gone = bench.store.discard_letters(&LetterFilter::one(first)).await;
    assert_eq!(gone.expect("letters are discarded"), 0);
}

/// [`DeadLetters`] clause 3.
pub async fn what_cannot_be_redriven_is_not_marked<F: Fixture>() {
    let bench = bench!(F);
    let mismatch = |event: &str| {
        let kind = DeadLetterKind::Mismatch;
        DeadLetter::new(
            &delivery(1, Some(b"{}")),
            Some(key(event)),
            kind,
            0,
            "other",
        )
    };
    let cut = letter(1).within(&DeadLetterBounds::default().payload(1));
    for letter in [letter(2), cut, mismatch("a")] {
        bench.set_aside(&[letter]).await;
    }
    let ids = bench.ids(&LetterFilter::default()).await;
    let marked = async || -> Vec<bool> {
        let list = bench.store.list_letters(&LetterFilter::default()).await;
        let list = list.expect("letters are listed");
        list.iter().map(|letter| letter.redrive.is_some()).collect()
    };

    let itself = bench
        .store
        .request_redrive(&LetterFilter::default(), RedriveAs::Itself)
        .await;
    let refused = vec![(ids[1], Refusal::Cut), (ids[2], Refusal::Mismatch)];
    let requested = 1;
    assert_eq!(
        itself.expect("the request is answered"),
        Requested { requested, refused }
    );
    assert_eq!(marked().await, [true, false, false]);

    let cancelled = bench.store.cancel_redrive(&LetterFilter::default()).await;
    assert_eq!(cancelled.expect("marks are taken away"), 1);
    assert_eq!(marked().await, [false; 3]);

    let new = bench
        .store
        .request_redrive(&LetterFilter::default(), RedriveAs::New)
        .await;
    let refused = vec![(ids[1], Refusal::Cut)];
    let requested = 2;
    assert_eq!(
        new.expect("the request is answered"),
        Requested { requested, refused }
    );
    assert_eq!(marked().await, [true, false, true]);
}

/// [`Store`] clause 11.
pub async fn only_a_letter_that_is_marked_and_due_is_taken<F: Fixture>() {
    let bench = bench!(F);
    let id = bench.set_aside_dead(&key("a"), "k").await;
    let other = bench
        .store
        .open("other", DaysFrom::Id)
        .await
        .expect("it opens");
    assert!(!bench.can_take(id).await);

    bench.mark(&LetterFilter::one(id)).await;
    assert!(bench.can_take(id).await);
    let mut unit = bench.begin_for(other).await;
    let theirs = unit.take_letter(id).await.expect("the take is answered");
    assert!(theirs.is_none());
    unit.rollback().await;

    let hour = Some(Duration::from_hours(1));
    let noted = bench.store.redrive_failed(id, "again", hour).await;
    noted.expect("the failure is noted");
    assert!(!bench.can_take(id).await);
    bench.mark(&LetterFilter::one(id)).await;
    assert!(bench.can_take(id).await);
}

/// [`Store`] clause 11: letters of a lane go in the order in which they were set aside.
pub async fn a_letter_behind_another_of_its_lane_is_not_taken<F: Fixture>() {
    let bench = bench!(F);
    let first = bench.set_aside_dead(&key("a"), "k").await;
    let second = bench.set_aside_dead(&key("b"), "k").await;
    let elsewhere = bench.set_aside_dead(&key("c"), "l").await;

    // One that nobody has asked for holds nobody back.
    bench.mark(&LetterFilter::one(second)).await;
    assert!(bench.can_take(second).await);

    bench.mark(&LetterFilter::default()).await;
    assert!(bench.can_take(first).await);
    assert!(!bench.can_take(second).await);
    assert!(bench.can_take(elsewhere).await);

    // One that has to wait does.
    let hour = Some(Duration::from_hours(1));
    let noted = bench.store.redrive_failed(first, "again", hour).await;
    noted.expect("the failure is noted");
    assert!(!bench.can_take(second).await);
    let waits: Vec<_> = bench
        .store
        .requested_redrives(bench.consumer, None, 10)
        .await
        .expect("marked letters are listed")
        .iter()
        .map(|letter| (letter.id, letter.wait.is_zero(), letter.attempts))
        .collect();
    let expected = [(first, false, 1), (second, true, 0), (elsewhere, true, 0)];
    assert_eq!(waits, expected);
    let behind = bench
        .store
        .requested_redrives(bench.consumer, Some(first), 1)
        .await
        .expect("marked letters are listed");
    assert_eq!(behind[0].id, second);
    assert_eq!(behind.len(), 1);

    let noted = bench.store.redrive_failed(first, "for good", None).await;
    noted.expect("the failure is noted");
    assert!(bench.can_take(second).await);
}

/// [`Store`] clause 11: nobody waits for a letter.
pub async fn a_letter_that_another_unit_has_is_not_taken<F: Fixture>() {
    let bench = bench!(F);
    if !F::CONCURRENT_UNITS {
        return;
    }
    let first = bench.set_aside_dead(&key("a"), "k").await;
    let second = bench.set_aside_dead(&key("b"), "k").await;
    bench.mark(&LetterFilter::default()).await;

    let (mut holder, letter) = bench.take(first).await;
    assert!(letter.is_some());
    assert!(!bench.can_take(first).await);
    holder.delete_letter(first).await.expect("it is deleted");
    // Not before the first one's unit has ended.
    assert!(!bench.can_take(second).await);
    let claimed = holder.claim(&[Claim::new(key("c"))]).await;
    claimed.expect("a claim is answered");
    holder.commit().await.expect("the unit commits");

    assert!(!bench.can_take(first).await);
    assert!(bench.can_take(second).await);
}

/// [`Store`] clauses 11 and 12: the letter goes with the unit that makes the effect, or stays.
pub async fn a_redriven_letter_goes_with_its_effect_or_stays<F: Fixture>() {
    let bench = bench!(F);
    let id = bench.set_aside_dead(&key("a"), "k").await;
    bench.mark(&LetterFilter::default()).await;
    let claim = Claim::new(key("a"));

    for commits in [false, true] {
        let (mut unit, letter) = bench.take(id).await;
        assert!(letter.is_some());
        let reopened = unit.reopen(&claim, Reopen::Dead).await;
        reopened.expect("the row is taken back");
        let verdicts = unit.claim(std::slice::from_ref(&claim)).await;
        assert_eq!(
            verdicts.expect("a claim is answered"),
            [Verdict::Fresh(Prior::default())]
        );
        F::write_effect(unit.connection(), "a").await;
        unit.delete_letter(id).await.expect("it is deleted");
        if commits {
            unit.commit().await.expect("the unit commits");
            assert_eq!(
                bench.settled(&key("a")).await,
                Some(Settled::Done { reply: None })
            );
            assert!(bench.ids(&LetterFilter::default()).await.is_empty());
            assert_eq!(bench.fixture.effects().await, ["a"]);
        } else {
            unit.rollback().await;
            assert_eq!(bench.settled(&key("a")).await, Some(Settled::Dead));
            assert!(bench.can_take(id).await);
            assert!(bench.fixture.effects().await.is_empty());
        }
    }
}

/// [`Store`] clause 12: what took effect is never taken back.
pub async fn only_a_row_of_that_outcome_is_taken_back<F: Fixture>() {
    let bench = bench!(F);
    let reason: Box<str> = "never".into();
    let outcomes = [
        ("done", None),
        ("rejected", Some(Settled::Rejected { reason })),
        ("dead", Some(Settled::Dead)),
    ];
    for (id, outcome) in &outcomes {
        let mut unit = bench.begin().await;
        let claimed = unit.claim(&[Claim::new(key(id))]).await;
        claimed.expect("a claim is answered");
        if let Some(outcome) = outcome {
            let recorded = unit.record(&[(key(id), outcome.clone())]).await;
            recorded.expect("the outcome is recorded");
        }
        unit.commit().await.expect("the unit commits");
    }

    for (what, theirs) in [(Reopen::Dead, "dead"), (Reopen::Rejected, "rejected")] {
        for (id, _) in &outcomes {
            let mut unit = bench.begin().await;
            let claim = Claim::new(key(id));
            let reopened = unit.reopen(&claim, what).await;
            reopened.expect("the question is answered");
            let verdicts = unit.claim(&[claim]).await;
            let verdict = verdicts.expect("a claim is answered").remove(0);
            unit.rollback().await;
            assert_eq!(matches!(verdict, Verdict::Fresh(_)), *id == theirs, "{id}");
        }
    }
}

/// [`Store`] clauses 2 and 12: a delivery that arrives meanwhile is a duplicate of whichever ends
/// first.
pub async fn a_rival_of_a_redrive_waits_for_it<F: Fixture>() {
    let bench = bench!(F);
    if !F::CONCURRENT_UNITS {
        return;
    }
    for commits in [true, false] {
        let event = key(if commits { "a" } else { "b" });
        bench.set_aside_dead(&event, "k").await;
        let claim = Claim::new(event.clone());
        let mut holder = bench.begin().await;
        let reopened = holder.reopen(&claim, Reopen::Dead).await;
        reopened.expect("the row is taken back");
        let claimed = holder.claim(std::slice::from_ref(&claim)).await;
        assert_eq!(claimed.expect("a claim is answered"), fresh(1));

        let ((), rival) = tokio::join!(
            async {
                let_the_rival_wait().await;
                if commits {
                    holder.commit().await.expect("the unit commits");
                } else {
                    holder.rollback().await;
                }
            },
            bench.settled(&event)
        );

        let expected = if commits {
            Settled::Done { reply: None }
        } else {
            Settled::Dead
        };
        assert_eq!(rival, Some(expected));
    }
}

/// [`Unit::reopen`]: two letters of one event are not redriven at once.
pub async fn a_row_that_is_taken_back_elsewhere_is_busy<F: Fixture>() {
    let bench = bench!(F);
    if !F::CONCURRENT_UNITS {
        return;
    }
    bench.set_aside_dead(&key("a"), "k").await;
    let claim = Claim::new(key("a"));
    let mut holder = bench.begin().await;
    let reopened = holder.reopen(&claim, Reopen::Dead).await;
    reopened.expect("the row is taken back");

    let mut begin = crate::store::Begin::new(bench.consumer);
    begin.claim_wait = Duration::from_millis(50);
    let mut rival = bench.store.begin(begin).await.expect("a unit begins");
    let refused = rival.reopen(&claim, Reopen::Dead).await;

    assert!(matches!(refused, Err(StoreError::Busy)), "{refused:?}");
}

/// [`Unit::room_for_letters`] and [`Unit::has_letter`].
pub async fn letters_are_counted_for_each_consumer<F: Fixture>() {
    let bench = bench!(F);
    let other = bench
        .store
        .open("other", DaysFrom::Id)
        .await
        .expect("it opens");
    bench.set_aside(&[letter(1), letter(2)]).await;

    let mut unit = bench.begin().await;
    for (limit, room) in [(5, 3), (2, 0), (1, 0), (u64::MAX, u64::MAX - 2)] {
        let left = unit.room_for_letters(limit).await;
        assert_eq!(left.expect("letters are counted"), room);
    }
    for (offset, there) in [(1, true), (3, false)] {
        let known = unit.has_letter(&letter(offset).source_key).await;
        assert_eq!(known.expect("the question is answered"), there);
    }
    unit.rollback().await;
    let mut unit = bench.begin_for(other).await;
    let left = unit.room_for_letters(5).await;
    assert_eq!(left.expect("letters are counted"), 5);
    let known = unit.has_letter(&letter(1).source_key).await;
    assert!(!known.expect("the question is answered"));
    unit.rollback().await;
}

/// [`DeadLetters`] clauses 4 and 5; field case 097: nothing grows with the number of failures.
pub async fn a_failed_redrive_leaves_one_letter_with_its_last_error<F: Fixture>() {
    let bench = bench!(F);
    let id = bench.set_aside_dead(&key("a"), "k").await;
    bench.mark(&LetterFilter::default()).await;
    let show = async || {
        let shown = bench.store.show_letter(id).await.expect("it is shown");
        shown.expect("it is there")
    };

    let soon = Some(Duration::from_millis(1));
    for nth in 1..=20 {
        let noted = bench
            .store
            .redrive_failed(id, &format!("error {nth}"), soon)
            .await;
        noted.expect("the failure is noted");
        let redrive = show().await.redrive.expect("it is still marked");
        assert_eq!(redrive.attempts, nth);
    }
    bench.mark(&LetterFilter::default()).await;
    let redrive = show().await.redrive.expect("it is marked");
    assert_eq!(redrive.attempts, 0);
    let noted = bench.store.redrive_failed(id, "nul\0", None).await;
    noted.expect("the failure is noted");

    let shown = show().await;
    assert_eq!((shown.redrive, shown.letter.attempts), (None, 24));
    assert_eq!(shown.letter.error.replace('\0', "\u{2400}"), "nul\u{2400}");
    assert_eq!(shown.deliveries, 1);
    assert_eq!(bench.ids(&LetterFilter::default()).await, [id]);
}

/// [`DeadLetters`] clause 6.
pub async fn retry_rows_of_settled_events_are_swept_away<F: Fixture>() {
    let bench = bench!(F);
    for id in ["settled", "waiting"] {
        let charged = bench
            .store
            .charge(bench.consumer, &key(id), "it failed", Duration::ZERO)
            .await;
        charged.expect("the attempt is charged");
    }
    // By another process, which did not know of the attempts.
    let mut unit = bench.begin().await;
    let claimed = unit.claim(&[Claim::new(key("settled"))]).await;
    claimed.expect("a claim is answered");
    unit.commit().await.expect("the unit commits");

    assert_eq!(bench.store.sweep_retries().await.expect("it sweeps"), 1);
    assert_eq!(bench.store.sweep_retries().await.expect("it sweeps"), 0);
    let Verdict::Fresh(prior) = bench.look_one(&key("waiting")).await else {
        panic!("it is not settled")
    };
    assert_eq!(prior.attempts, 1);
}
