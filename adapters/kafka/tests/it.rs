//! The tests of this adapter that need services.

#[path = "../../../tests/it/kafka_source.rs"]
mod kafka_source;
