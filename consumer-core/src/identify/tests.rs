//! Ids and tenants, from wherever they come.

use super::*;
use crate::delivery::{AssignmentId, Headers};
use crate::handler::error_chain;
use bytes::Bytes;
use std::time::{Duration, SystemTime};

fn delivery(headers: &[(&'static str, &'static str)], payload: &'static str) -> Delivery {
    let position = Position::Log {
        topic: "orders".into(),
        partition: 3,
        offset: 42,
    };
    let mut delivery = Delivery::new(
        position,
        AssignmentId(1),
        42,
        Some(Bytes::from_static(payload.as_bytes())),
    );
    delivery.headers = headers
        .iter()
        .map(|&(n, v)| (n, Bytes::from_static(v.as_bytes())))
        .collect::<Headers>();
    delivery
}

fn id(from: &IdFrom, delivery: &Delivery) -> Result<String, String> {
    from.identify(delivery)
        .map(|key| key.to_string())
        .map_err(|e| e.to_string())
}

#[test]
fn the_default_prefers_the_header_to_the_payload() {
    let from = IdFrom::default();
    let both = delivery(&[("event-id", "h")], r#"{"event_id":"p"}"#);
    assert_eq!(id(&from, &both).unwrap(), "h");
    assert_eq!(
        id(&from, &delivery(&[], r#"{"event_id":"p"}"#)).unwrap(),
        "p"
    );
    assert_eq!(
        id(&from, &delivery(&[("event-id", "h")], "no json")).unwrap(),
        "h"
    );
}

#[test]
fn what_has_no_id_says_where_it_was_looked_for() {
    let error = id(&IdFrom::default(), &delivery(&[], "{}")).unwrap_err();
    assert!(
        error.contains("event-id") && error.contains("/event_id"),
        "{error}"
    );
    assert!(id(&IdFrom::default(), &delivery(&[], "{")).is_err());
    assert!(id(&IdFrom::default(), &delivery(&[], r#"{"event_id":""}"#)).is_err());
    assert!(id(&IdFrom::default(), &delivery(&[], r#"{"event_id":1.5}"#)).is_err());
}

/// Field case 097: of repeated headers the last is the id.
#[test]
fn of_repeated_headers_the_last_counts() {
    let twice = delivery(&[("event-id", "a"), ("event-id", "b")], "");
    assert_eq!(id(&IdFrom::default(), &twice).unwrap(), "b");
}

#[test]
fn a_cloud_event_is_known_by_source_and_id() {
    let from = IdFrom::cloud_event();
    let binary = delivery(&[("ce_id", "1"), ("ce_source", "/shop")], "\u{0}");
    assert_eq!(id(&from, &binary).unwrap(), "/shop:1");
    let structured = delivery(&[], r#"{"id":"1","source":"/shop"}"#);
    assert_eq!(
        from.identify(&binary).unwrap(),
        from.identify(&structured).unwrap()
    );
    assert!(id(&from, &delivery(&[], r#"{"id":"1"}"#)).is_err());
}

#[test]
fn positions_are_ids_only_when_asked_for() {
    let from = IdFrom::position_where_producer_never_resends();
    assert_eq!(id(&from, &delivery(&[], "")).unwrap(), "orders/3/42");
    assert!(
        id(
            &IdFrom::message_id_where_producer_never_resends(),
            &delivery(&[], "")
        )
        .is_err()
    );
}

/// Field case 020: the same offsets, used again.
#[test]
fn a_topic_that_was_made_again_brings_other_events() {
    let from = IdFrom::position_where_producer_never_resends();
    let sent = |millis| {
        let mut record = delivery(&[], "");
        record.published_at = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        id(&from, &record).unwrap()
    };
    assert_eq!(sent(1_764_600_000_123), "orders/3/42@1764600000123");
    assert_eq!(sent(1_764_600_000_123), sent(1_764_600_000_123));
    assert_ne!(sent(1_764_600_000_123), sent(1_764_600_000_124));
}

#[test]
fn a_pointer_that_cannot_be_is_refused_at_the_start() {
    assert!(IdFrom::json_pointer("id").validate().is_err());
    assert!(IdFrom::json_pointer("/id").validate().is_ok());
}

fn tenant(from: &TenantFrom, delivery: &Delivery) -> Result<Option<String>, String> {
    let found = from.find(delivery).map_err(|e| error_chain(&e))?;
    Ok(found.map(|tenant| tenant.as_str().to_owned()))
}

#[test]
fn a_tenant_is_found_where_it_is_said_to_be() {
    let delivery = delivery(&[("tenant", "h")], r#"{"meta":{"tenant":"p","number":7}}"#);
    for (from, expected) in [
        (TenantFrom::default(), None),
        (TenantFrom::header("tenant"), Some("h")),
        (TenantFrom::json_pointer("/meta/tenant"), Some("p")),
        (TenantFrom::json_pointer("/meta/number"), Some("7")),
        (TenantFrom::topic(), Some("orders")),
        (TenantFrom::closure(|_| Tenant::new("c")), Some("c")),
        (TenantFrom::closure(|_| Tenant::new("")), Some("")),
    ] {
        let found = tenant(&from, &delivery).unwrap();
        assert_eq!(found.as_deref(), expected, "{from:?}");
    }
}

#[test]
fn a_tenant_that_is_missing_empty_or_too_long_is_refused_by_name() {
    let header = TenantFrom::header("tenant");
    let missing = tenant(&header, &delivery(&[], "")).unwrap_err();
    assert_eq!(missing, "no tenant: looked at header \"tenant\"");
    let empty = tenant(&header, &delivery(&[("tenant", "")], "")).unwrap_err();
    assert_eq!(empty, "unusable event key\nthe tenant is empty");

    let mut long = delivery(&[], "");
    let text = "\u{e9}".repeat(128);
    long.headers.push("tenant", Some(Bytes::from(text)));
    let long = tenant(&header, &long).unwrap_err();
    assert!(
        long.contains("the tenant has 256 bytes, more than the 255"),
        "{long}"
    );
}

#[test]
fn a_tenant_pointer_that_cannot_be_is_refused_at_the_start() {
    assert!(TenantFrom::json_pointer("tenant").validate().is_err());
    assert!(TenantFrom::json_pointer("/tenant").validate().is_ok());
}

const UUID: &str = "0190163d-8694-739b-aea5-966c26f8ad91";
const UUID_FORMS: [&str; 4] = [
    "0190163D-8694-739B-AEA5-966C26F8AD91",
    "{0190163d-8694-739b-aea5-966c26f8ad91}",
    "0190163D8694739baea5966c26f8ad91",
    "urn:uuid:0190163d-8694-739b-aea5-966c26f8ad91",
];

#[test]
fn the_forms_of_a_uuid_are_one_id_only_when_asked_for() {
    for form in UUID_FORMS {
        let delivery = delivery(&[("event-id", form)], "");
        assert_eq!(id(&IdFrom::default(), &delivery).unwrap(), form);
        let normalised = IdFrom::default().normalise_uuids();
        assert_eq!(id(&normalised, &delivery).unwrap(), UUID);
    }
}

/// Field cases 094, 096: whatever is no UUID stays as it is, byte for byte.
#[test]
fn normalising_uuids_touches_nothing_else() {
    let from = IdFrom::header("event-id").normalise_uuids();
    for text in [
        UUID,
        "Order-7",
        "caf\u{e9}",
        "cafe\u{301}",
        "a ",
        "a\t",
        " 0190163D-8694-739B-AEA5-966C26F8AD91",
        "0190163D-8694-739B-AEA5-966C26F8AD9",
        "0190163D8694-739BAEA5-966C26F8AD91",
    ] {
        assert_eq!(
            id(&from, &delivery(&[("event-id", text)], "")).unwrap(),
            text
        );
    }
}

#[test]
fn a_cloud_events_id_is_normalised_and_its_source_is_not() {
    let from = IdFrom::cloud_event().normalise_uuids();
    let event = delivery(
        &[("ce_id", UUID_FORMS[0]), ("ce_source", UUID_FORMS[0])],
        "",
    );
    let key = from.identify(&event).unwrap();
    assert_eq!(key.id.to_string(), UUID);
    assert_eq!(key.tenant.as_str(), UUID_FORMS[0]);
}
