//! oneffect's SQS source, on the AWS SDK: standard and FIFO queues.
//!
//! What it promises is the contract of [`Source`](oneffect_core::Source). How, on SQS:
//!
//! - A message is deleted when its effect is committed, and then only. Deletes go out in batches
//!   that form while the call before is under way; every entry's answer is read, and what failed is
//!   tried again by itself.
//! - A message that is held stays hidden, in the buffer as well as in the handler, for as long as
//!   this process lives, up to the 12 hours that SQS allows. When the process dies it shows again
//!   after [`SqsConfig::visibility`].
//! - A message that is received twice is two deliveries; both are settled by its newest receipt
//!   handle.
//! - On a FIFO queue the messages of a group are handed out as one lane, and given back together.
//! - One long poll is outstanding while the queue is idle, more only while they come back full.
//!   Deletes and extensions go before receives when SQS throttles.
//! - A stop waits for outstanding receives, since a receive that is abandoned hides what it would
//!   have brought, and gives back what nobody has begun.
//!
//! SQS refuses bodies with certain characters; senders use [`encode_body`], which the source undoes.
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `sso` | credentials of AWS IAM Identity Center (`aws sso login`) |

mod api;
mod backoff;
mod body;
mod config;
mod ledger;
mod message;
mod open;
mod queues;
mod receiver;
mod settler;
mod shared;
mod source;

pub use body::{BASE64, ENCODING_ATTRIBUTE, EncodedBody, encode_body};
pub use config::SqsConfig;
pub use source::Sqs;
