//! The command line of `oneffect window`.

use clap::{ArgAction, Args};
use oneffect_core::EventId;

#[derive(Args, Debug)]
pub(crate) struct Window {
    /// Events a second, on average
    #[arg(long, value_name = "N")]
    pub(crate) rate: f64,
    /// For how many days they are to be remembered
    #[arg(long, value_name = "N")]
    pub(crate) days: u32,
    /// An event id as the producer writes them: its length counts, and whether a
    /// time is in it [default: a UUID of version 7]
    #[arg(long, value_name = "EVENT_ID", value_parser = super::event_id, verbatim_doc_comment)]
    pub(crate) id: Option<EventId>,
    /// Bytes of a tenant's name
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) tenant_bytes: usize,
    /// Fingerprints are taken
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) fingerprints: bool,
    /// Bytes of a stored reply
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) reply_bytes: usize,
    /// Which share of the events has a reply, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    pub(crate) reply_share: f64,
}
