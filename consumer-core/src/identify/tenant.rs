//! Whose event it is.

use std::fmt;
use std::sync::Arc;

use super::{Unidentified, caught, given_tenant, header_text, json_text};
use crate::delivery::Delivery;
use crate::event_key::{InvalidEventKey, Tenant};
use crate::json_pointer::JsonPointer;

/// Where the tenant comes from: the owner of the event id's namespace. Part of the event key, so
/// that two tenants may use the same id for two events.
///
/// The default is the empty tenant for every event. Where a tenant is asked for and a delivery has
/// none, or an empty one, it is set aside: a repeat that carries the tenant would be another event.
/// For a tenant that may be missing, use [`TenantFrom::closure`].
///
/// A tenant must be the same for every delivery of an event. Changing where it comes from changes
/// every key, and makes all events new.
#[derive(Clone, Default)]
pub struct TenantFrom(Place);

#[derive(Clone, Default)]
enum Place {
    #[default]
    Nowhere,
    Header(Box<str>),
    Json(JsonPointer, Box<str>),
    Topic,
    Closure(Arc<Closure>),
    /// A pointer that does not parse: refused when the consumer starts.
    Unusable(String),
}

type Closure = dyn Fn(&Delivery) -> Result<Tenant, InvalidEventKey> + Send + Sync;

impl TenantFrom {
    /// From a header or message attribute; of several with that name the last counts.
    pub fn header(name: impl Into<Box<str>>) -> Self {
        Self(Place::Header(name.into()))
    }

    /// From the JSON payload, at a pointer such as `/meta/tenant`: text, or an integer.
    pub fn json_pointer(pointer: &str) -> Self {
        Self(
            JsonPointer::parse(pointer).map_or_else(Place::Unusable, |parsed| {
                Place::Json(parsed, pointer.into())
            }),
        )
    }

    /// The topic or queue: for one that carries several producers' streams, each with ids of its
    /// own. An event that is copied to another topic is another event then.
    pub fn topic() -> Self {
        Self(Place::Topic)
    }

    /// From anywhere.
    pub fn closure(
        find: impl Fn(&Delivery) -> Result<Tenant, InvalidEventKey> + Send + Sync + 'static,
    ) -> Self {
        Self(Place::Closure(Arc::new(find)))
    }

    /// What is wrong with the setting itself.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if let Place::Unusable(reason) = &self.0 {
            return Err(reason.clone());
        }
        Ok(())
    }

    /// Whether no tenant is asked for.
    pub(crate) fn is_nobody(&self) -> bool {
        matches!(self.0, Place::Nowhere)
    }

    /// The tenant of a delivery; `None` when none is asked for.
    pub(crate) fn find(&self, delivery: &Delivery) -> Result<Option<Tenant>, Unidentified> {
        let missing = |place| Unidentified::NoTenant(place);
        let tenant = match &self.0 {
            Place::Nowhere => return Ok(None),
            Place::Closure(find) => return Ok(Some(caught(|| find(delivery))?)),
            Place::Unusable(reason) => return Err(missing(reason.clone())),
            Place::Topic => delivery.position.source().into(),
            Place::Header(name) => header_text(delivery, name, "tenant")?
                .ok_or_else(|| missing(format!("header {name:?}")))?
                .into(),
            Place::Json(pointer, text) => json_text(delivery, pointer)?
                .ok_or_else(|| missing(format!("{text:?} in the payload")))?,
        };
        Ok(Some(given_tenant(tenant)?))
    }
}

impl fmt::Debug for TenantFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Nowhere => f.write_str("TenantFrom(nowhere)"),
            Place::Header(name) => write!(f, "TenantFrom({name:?})"),
            Place::Json(_, pointer) => write!(f, "TenantFrom({pointer:?})"),
            Place::Topic => f.write_str("TenantFrom(topic)"),
            Place::Closure(_) => f.write_str("TenantFrom(closure)"),
            Place::Unusable(reason) => write!(f, "TenantFrom({reason})"),
        }
    }
}
