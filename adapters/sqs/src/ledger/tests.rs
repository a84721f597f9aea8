use super::*;
use crate::message::ASSIGNMENT;

const VISIBILITY: Duration = Duration::from_secs(30);
const HALF: Duration = Duration::from_secs(15);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn standard<'a>(message_id: &'a str, handle: &'a str) -> Receipt<'a> {
    Receipt {
        message_id,
        handle,
        group: None,
    }
}

fn of_group<'a>(message_id: &'a str, group: &'a str) -> Receipt<'a> {
    Receipt {
        message_id,
        handle: message_id,
        group: Some(group.as_bytes()),
    }
}

fn settlement(tag: u64, settle: Settle) -> Settlement {
    Settlement {
        assignment: ASSIGNMENT,
        tag,
        settle,
    }
}

fn ack(tag: u64) -> Settlement {
    settlement(tag, Settle::Ack)
}

fn release(tag: u64, after: u64) -> Settlement {
    settlement(tag, Settle::Release(seconds(after)))
}

impl Ledger {
    fn deletes(&mut self, now: Instant) -> Option<Call> {
        self.next_call(CallKind::Delete, now)
    }

    fn changes(&mut self, now: Instant) -> Option<Call> {
        self.next_call(CallKind::ChangeVisibility, now)
    }

    fn answer_all(&mut self, call: &Call, answer: &Answer, now: Instant) {
        for entry in &call.entries {
            self.answered(entry, answer, now, now);
        }
    }
}

fn handles(call: &Call) -> Vec<&str> {
    call.entries.iter().map(|entry| &*entry.handle).collect()
}

fn wishes(call: &Call) -> Vec<Wish> {
    call.entries.iter().map(|entry| entry.wish).collect()
}

fn lost() -> Answer {
    Answer::Lost("ReceiptHandleIsInvalid".to_owned())
}

fn failed() -> Answer {
    Answer::Failed {
        reason: "InternalError".to_owned(),
        retriable: true,
    }
}

#[test]
fn what_is_held_is_extended_at_half_of_its_visibility_again_and_again() {
    let mut ledger = Ledger::new(VISIBILITY);
    let mut now = Instant::now();
    ledger.received(&standard("m", "h"), now);

    for _ in 0..3 {
        assert!(ledger.changes(now + HALF - seconds(1)).is_none());
        now += HALF;
        let call = ledger.changes(now).unwrap();
        assert_eq!(wishes(&call), [Wish::Hide { for_seconds: 30 }]);
        ledger.answer_all(&call, &Answer::Done, now);
    }
}

/// Field case 055.
#[test]
fn a_settled_message_is_extended_until_its_delete_is_answered() {
    let mut ledger = Ledger::new(VISIBILITY);
    let start = Instant::now();
    let tag = ledger.received(&standard("m", "h"), start);
    ledger.settle(&[ack(tag)], start);

    let unanswered = ledger.deletes(start).unwrap();
    ledger.unanswered(&unanswered.entries);
    let extension = ledger.changes(start + HALF).unwrap();
    ledger.answer_all(&extension, &Answer::Done, start + HALF);
    let delete = ledger.deletes(start + HALF).unwrap();
    ledger.answer_all(&delete, &Answer::Done, start + HALF);

    assert_eq!(wishes(&extension), [Wish::Hide { for_seconds: 30 }]);
    assert!(ledger.changes(start + seconds(3600)).is_none());
    assert_eq!(ledger.len(), 0);
}

/// Field case 055: an extension that overtakes a release would undo its delay.
#[test]
fn one_message_is_in_one_call_at_a_time() {
    let mut ledger = Ledger::new(VISIBILITY);
    let start = Instant::now();
    let tag = ledger.received(&standard("m", "h"), start);
    let extension = ledger.changes(start + HALF).unwrap();

    ledger.settle(&[release(tag, 60)], start + HALF);
    let meanwhile = ledger.changes(start + HALF);
    ledger.answer_all(&extension, &Answer::Done, start + HALF);
    let afterwards = ledger.changes(start + HALF).unwrap();

    assert!(meanwhile.is_none());
    assert_eq!(wishes(&afterwards), [Wish::Show { after_seconds: 60 }]);
}

/// Field case 057.
#[test]
fn an_extension_asks_for_no_more_than_what_is_left_of_12_hours() {
    let mut ledger = Ledger::new(seconds(3600));
    let start = Instant::now();
    let mut now = start;
    let tag = ledger.received(&standard("m", "h"), now);
    let mut last = None;

    while let Some(next) = ledger.next_call_at(CallKind::ChangeVisibility) {
        now = next;
        let call = ledger.changes(now).unwrap();
        let [Wish::Hide { for_seconds }] = wishes(&call)[..] else {
            panic!("no extension: {call:?}");
        };
        assert!(now + seconds(for_seconds.into()) <= start + LONGEST_HIDDEN);
        ledger.answer_all(&call, &Answer::Done, now);
        last = Some(now + seconds(for_seconds.into()));
    }
    ledger.settle(&[ack(tag)], now);

    assert_eq!(last, Some(start + LONGEST_HIDDEN));
    assert!(ledger.deletes(now).is_some());
}

#[test]
fn a_release_is_rounded_up_and_counts_what_has_passed_since() {
    let mut ledger = Ledger::new(VISIBILITY);
    let start = Instant::now();
    let tag = ledger.received(&standard("m", "h"), start);
    let after = Settle::Release(Duration::from_millis(9_500));

    ledger.settle(&[settlement(tag, after)], start);
    let call = ledger.changes(start + seconds(5)).unwrap();

    assert_eq!(wishes(&call), [Wish::Show { after_seconds: 5 }]);
}

#[test]
fn a_release_hides_for_12_hours_from_receipt_at_most() {
    let mut ledger = Ledger::new(VISIBILITY);
    let start = Instant::now();
    let tag = ledger.received(&standard("m", "h"), start);
    let later = start + seconds(3600);

    ledger.settle(&[release(tag, 1_000_000)], later);
    let call = ledger.changes(later).unwrap();

    let left = u32::try_from(LONGEST_HIDDEN.as_secs() - 3600).unwrap();
    assert_eq!(
        wishes(&call),
        [Wish::Show {
            after_seconds: left
        }]
    );
}

/// Field case 060.
#[test]
fn a_delete_uses_the_newest_handle() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let first = ledger.received(&standard("m", "old"), now);
    ledger.settle(&[ack(first)], now);
    let delete = ledger.deletes(now).unwrap();
    let second = ledger.received(&standard("m", "new"), now);

    ledger.answer_all(&delete, &lost(), now);
    let again = ledger.deletes(now).unwrap();
    ledger.answer_all(&again, &Answer::Done, now);

    assert_eq!(handles(&again), ["new"]);
    ledger.settle(&[ack(second)], now);
    assert!(ledger.deletes(now).is_none());
    assert_eq!(ledger.len(), 0);
}

/// Field case 061.
#[test]
fn a_message_that_was_received_twice_is_in_a_batch_once() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let mut acks = vec![
        ack(ledger.received(&standard("slow", "s1"), now)),
        ack(ledger.received(&standard("slow", "s2"), now)),
    ];
    for other in ["1", "2", "3"] {
        acks.push(ack(ledger.received(&standard(other, other), now)));
    }

    ledger.settle(&acks, now);
    let call = ledger.deletes(now).unwrap();

    assert_eq!(handles(&call), ["s2", "1", "2", "3"]);
    assert!(ledger.deletes(now).is_none());
}

#[test]
fn a_message_stays_hidden_while_any_delivery_of_it_is_open() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let first = ledger.received(&standard("m", "h1"), now);
    let second = ledger.received(&standard("m", "h2"), now);

    ledger.settle(&[release(first, 5)], now);
    let while_open = ledger.changes(now);
    ledger.settle(&[release(second, 1)], now);
    let call = ledger.changes(now).unwrap();

    assert!(while_open.is_none());
    assert_eq!(handles(&call), ["h2"]);
    assert_eq!(wishes(&call), [Wish::Show { after_seconds: 5 }]);
}

#[test]
fn a_message_of_which_one_delivery_is_settled_is_deleted_whatever_the_others_say() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let first = ledger.received(&standard("m", "h1"), now);
    let second = ledger.received(&standard("m", "h2"), now);

    ledger.settle(&[release(first, 0), ack(second)], now);

    assert!(ledger.deletes(now).is_some());
    assert!(ledger.changes(now).is_none());
}

#[test]
fn a_release_that_took_too_long_is_forgotten_when_the_message_comes_again() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let first = ledger.received(&standard("m", "h1"), now);
    ledger.settle(&[release(first, 60)], now);
    let slow = ledger.changes(now).unwrap();
    ledger.received(&standard("m", "h2"), now);

    ledger.answer_all(&slow, &Answer::Done, now);
    let call = ledger.changes(now).unwrap();

    assert_eq!(handles(&call), ["h2"]);
    assert_eq!(wishes(&call), [Wish::Hide { for_seconds: 30 }]);
}

/// Field case 062.
#[test]
fn only_what_failed_is_tried_again_and_not_for_ever() {
    let mut ledger = Ledger::new(VISIBILITY);
    let mut now = Instant::now();
    let acks: Vec<_> = (0..10)
        .map(|n| n.to_string())
        .map(|id| ack(ledger.received(&standard(&id, &id), now)))
        .collect();
    ledger.settle(&acks, now);
    let call = ledger.deletes(now).unwrap();
    for entry in &call.entries {
        let answer = match &*entry.handle {
            "3" => failed(),
            _ => Answer::Done,
        };
        ledger.answered(entry, &answer, now, now);
    }

    let mut waits = Vec::new();
    while let Some(next) = ledger.next_call_at(CallKind::Delete) {
        waits.push(next - now);
        now = next;
        let call = ledger.deletes(now).unwrap();
        assert_eq!(handles(&call), ["3"]);
        ledger.answer_all(&call, &failed(), now);
    }

    assert_eq!(waits.len() + 1, MAX_REFUSALS as usize);
    assert!(waits[5] > waits[0] * 4, "{waits:?}");
    assert_eq!((ledger.given_up(), ledger.len()), (1, 0));
}

#[test]
fn what_is_the_requests_fault_is_not_tried_again() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let tag = ledger.received(&standard("m", "h"), now);
    ledger.settle(&[ack(tag)], now);
    let call = ledger.deletes(now).unwrap();
    let answer = Answer::Failed {
        reason: "AccessDenied".to_owned(),
        retriable: false,
    };

    ledger.answer_all(&call, &answer, now);

    assert_eq!((ledger.given_up(), ledger.len()), (1, 0));
}

/// Field case 058.
#[test]
fn a_handle_that_has_ended_is_no_failure() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let tag = ledger.received(&standard("m", "h"), now);
    let extension = ledger.changes(now + HALF).unwrap();
    ledger.answer_all(&extension, &lost(), now + HALF);
    assert!(ledger.changes(now + seconds(3600)).is_none());

    ledger.settle(&[ack(tag)], now + HALF);
    let delete = ledger.deletes(now + HALF).unwrap();
    ledger.answer_all(&delete, &lost(), now + HALF);

    assert_eq!((ledger.given_up(), ledger.len()), (0, 0));
}

/// Field case 065.
#[test]
fn what_is_released_of_a_group_gets_one_time_and_goes_out_oldest_first() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let a = ledger.received(&of_group("a", "g"), now);
    let b = ledger.received(&of_group("b", "g"), now);
    let other = ledger.received(&of_group("other", "of another"), now);
    let c = ledger.received(&of_group("c", "g"), now);

    let released = [
        release(c, 0),
        release(a, 40),
        release(b, 0),
        release(other, 0),
    ];
    ledger.settle(&released, now);
    let call = ledger.changes(now).unwrap();

    let together = Wish::Show { after_seconds: 40 };
    let at_once = Wish::Show { after_seconds: 0 };
    assert_eq!(handles(&call), ["a", "b", "other", "c"]);
    assert_eq!(wishes(&call), [together, together, at_once, together]);
}

/// Field case 065.
#[test]
fn what_was_received_together_is_extended_together() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    for id in ["a", "b", "c"] {
        ledger.received(&of_group(id, "g"), now);
    }
    let a_little_later = now + seconds(2);
    ledger.received(&of_group("d", "g"), a_little_later);

    let call = ledger.changes(now + HALF).unwrap();

    assert_eq!(handles(&call), ["a", "b", "c", "d"]);
}

#[test]
fn calls_have_at_most_ten_entries() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let acks: Vec<_> = (0..25)
        .map(|n| n.to_string())
        .map(|id| ack(ledger.received(&standard(&id, &id), now)))
        .collect();
    ledger.settle(&acks, now);

    let sizes: Vec<_> = std::iter::from_fn(|| ledger.deletes(now))
        .map(|call| call.entries.len())
        .collect();

    assert_eq!(sizes, [10, 10, 5]);
}

#[test]
fn closing_gives_back_what_is_open_and_waits_for_what_is_settled() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    ledger.received(&standard("open", "open"), now);
    let settled = ledger.received(&standard("settled", "settled"), now);
    ledger.settle(&[ack(settled)], now);

    ledger.let_go(now);
    ledger.close();
    let change = ledger.changes(now).unwrap();
    let delete = ledger.deletes(now).unwrap();
    ledger.answer_all(&change, &Answer::Done, now);
    let before = ledger.is_done();
    ledger.answer_all(&delete, &Answer::Done, now);

    assert_eq!(handles(&change), ["open"]);
    assert_eq!(wishes(&change), [Wish::Show { after_seconds: 0 }]);
    assert_eq!(handles(&delete), ["settled"]);
    assert_eq!((before, ledger.is_done()), (false, true));
}

#[test]
fn a_settlement_for_an_unknown_delivery_changes_nothing() {
    let mut ledger = Ledger::new(VISIBILITY);
    let now = Instant::now();
    let tag = ledger.received(&standard("m", "h"), now);

    ledger.settle(&[ack(tag + 1)], now);

    assert!(ledger.deletes(now).is_none());
}
