use super::*;
use crate::delivery::AssignmentId;
use crate::event_key::EventId;
use crate::fingerprint::Fingerprint;

fn delivery(offset: i64, payload: &'static str) -> Delivery {
    let position = Position::Log {
        topic: "t".into(),
        partition: 0,
        offset,
    };
    Delivery::new(
        position,
        AssignmentId(1),
        0,
        Some(Bytes::from_static(payload.as_bytes())),
    )
}

fn key_of(delivery: &Delivery, event: Option<&EventKey>) -> [u8; 32] {
    DeadLetter::source_key(delivery, event, DeadLetterKind::Poison)
}

#[test]
fn an_event_with_an_id_is_one_letter_wherever_it_is_delivered_from() {
    let event = EventKey::new(EventId::new("x").unwrap());
    assert_eq!(
        key_of(&delivery(1, "a"), Some(&event)),
        key_of(&delivery(2, "b"), Some(&event))
    );
}

#[test]
fn each_content_that_comes_under_an_id_is_a_letter_of_its_own() {
    let event = EventKey::new(EventId::new("x").unwrap());
    let letter = |payload: &'static str| {
        let delivery = delivery(1, payload);
        let fingerprint = Fingerprint::Payload.of(delivery.payload.as_deref());
        let kind = DeadLetterKind::Poison;
        DeadLetter::new(&delivery, Some(event.clone()), kind, 0, "")
            .with_fingerprint(fingerprint)
            .source_key
    };
    assert_eq!(letter("a"), letter("a"));
    assert_ne!(letter("a"), letter("b"));
}

#[test]
fn without_an_id_position_and_content_tell_letters_apart() {
    assert_eq!(
        key_of(&delivery(1, "a"), None),
        key_of(&delivery(1, "a"), None)
    );
    assert_ne!(
        key_of(&delivery(1, "a"), None),
        key_of(&delivery(2, "a"), None)
    );
    assert_ne!(
        key_of(&delivery(1, "a"), None),
        key_of(&delivery(1, "b"), None)
    );
}

#[test]
fn a_tombstone_is_not_an_empty_payload() {
    let mut tombstone = delivery(1, "");
    tombstone.payload = None;
    assert_ne!(key_of(&tombstone, None), key_of(&delivery(1, ""), None));
}

#[test]
fn text_is_cut_between_characters_and_says_so() {
    let cut = storable("\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}", 11);
    assert_eq!(cut, "\u{e9}\u{e9} [cut]");
}

#[test]
fn nul_becomes_its_picture() {
    assert_eq!(storable("a\0b", 11), "a\u{2400}b");
}

#[test]
fn what_is_too_large_is_cut_and_says_what_it_was() {
    let mut large = delivery(1, "0123456789");
    large.key = Some(Bytes::from_static(b"key"));
    large.headers = [("a", "12345"), ("b", "123456789"), ("c", "1")]
        .into_iter()
        .collect();
    let bounds = DeadLetterBounds::default().payload(4).key(3).headers(9);
    let whole = DeadLetter::new(&large, None, DeadLetterKind::Poison, 0, "");

    let cut = whole.clone().within(&bounds);

    assert_eq!(cut.payload.as_deref(), Some(&b"0123"[..]));
    assert_eq!(cut.key, whole.key);
    let names: Vec<&str> = cut.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "c"]);
    let (payload, headers) = (Some(10), 1);
    let key = None;
    assert_eq!(
        cut.cut,
        Cut {
            payload,
            key,
            headers
        }
    );
    assert_eq!(cut.source_key, whole.source_key);
    assert_eq!(cut.clone().within(&bounds).cut, cut.cut);
    let fits = whole.clone().within(&DeadLetterBounds::default());
    assert!(fits.cut.is_nothing() && fits.payload == whole.payload);
}

#[test]
fn a_letter_gives_its_delivery_back() {
    let mut whole = delivery(7, "x");
    whole.key = Some(Bytes::from_static(b"k"));
    whole.order = Order::Group(Bytes::from_static(b"g"));
    whole.headers = [("a", "1"), ("a", "2")].into_iter().collect();
    whole.deduplication_id = Some("d".into());
    whole.published_at = Some(SystemTime::UNIX_EPOCH);
    let letter = DeadLetter::new(&whole, None, DeadLetterKind::Poison, 0, "");

    let again = letter.to_delivery();

    let parts = |delivery: Delivery| {
        (
            (delivery.position, delivery.order, delivery.key),
            (delivery.payload, delivery.headers, delivery.published_at),
            delivery.deduplication_id,
        )
    };
    assert_eq!(parts(again), parts(whole));
}

#[test]
fn a_lane_is_a_group_else_a_record_key_else_a_partition() {
    let lane = |partition, order: Order, key: Option<&'static str>| {
        let mut delivery = delivery(1, "x");
        delivery.position = Position::Log {
            topic: "t".into(),
            partition,
            offset: 1,
        };
        delivery.order = order;
        delivery.key = key.map(Bytes::from);
        DeadLetter::new(&delivery, None, DeadLetterKind::Poison, 0, "").lane()
    };
    let group = |group: &'static str| Order::Group(Bytes::from(group));
    let ordered = Order::Assignment;

    assert_eq!(lane(0, Order::None, Some("k")), None);
    assert_eq!(lane(0, group("g"), Some("k")), lane(0, group("g"), None));
    assert_ne!(lane(0, group("g"), None), lane(0, group("h"), None));
    assert_ne!(
        lane(0, ordered.clone(), Some("k")),
        lane(1, ordered.clone(), Some("k"))
    );
    assert_ne!(
        lane(0, ordered.clone(), None),
        lane(0, ordered.clone(), Some(""))
    );
    assert_eq!(lane(0, ordered.clone(), None), lane(0, ordered, None));
}

#[test]
fn each_kind_is_spelt_in_one_way() {
    for kind in DeadLetterKind::ALL {
        assert_eq!(DeadLetterKind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(DeadLetterKind::parse("dead"), None);
}
