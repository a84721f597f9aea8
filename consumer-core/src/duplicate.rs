//! A delivery whose event was settled before.

use crate::delivery::Delivery;
use crate::event_key::EventKey;

/// A delivery whose event was settled before, or together with another delivery.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Duplicate<'d> {
    /// What it has in common with the delivery that was handled.
    pub event_key: &'d EventKey,
    /// What came this time: payload, headers and position.
    pub delivery: &'d Delivery,
}
