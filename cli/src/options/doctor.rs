//! The command line of `oneffect doctor`.

use std::time::Duration;

use clap::Args;
use oneffect_core::ReplayHorizon;

#[derive(Args, Debug)]
pub(crate) struct Doctor {
    #[cfg(feature = "kafka")]
    #[command(flatten)]
    pub(crate) kafka: KafkaOptions,
    #[cfg(feature = "sqs")]
    #[command(flatten)]
    pub(crate) sqs: SqsOptions,
    /// Who else may publish an event again, and how long after:
    /// webhooks=3d; or how far back a compacted topic will ever
    /// be read: 'topic state=7d'; may be repeated
    #[arg(long = "replay-horizon", value_name = "NAME=TIME", value_parser = horizon)]
    #[arg(verbatim_doc_comment)]
    pub(crate) horizons: Vec<ReplayHorizon>,
}

#[cfg(feature = "kafka")]
#[derive(Args, Debug)]
pub(crate) struct KafkaOptions {
    /// HOST:PORT, several with commas [env: KAFKA_BROKERS]
    #[arg(help_heading = "Kafka", long, value_name = "BROKERS")]
    pub(crate) kafka: Option<String>,
    /// A topic that the consumers read; may be repeated
    #[arg(
        help_heading = "Kafka",
        long = "topic",
        value_name = "NAME",
        requires = "group"
    )]
    pub(crate) topics: Vec<String>,
    /// Their group
    #[arg(help_heading = "Kafka", long, value_name = "NAME", requires = "topics")]
    pub(crate) group: Option<String>,
    /// A setting of librdkafka, such as security.protocol=sasl_ssl; may be
    /// repeated
    #[arg(help_heading = "Kafka", long = "kafka-set", value_name = "NAME=VALUE", value_parser = setting, verbatim_doc_comment)]
    pub(crate) settings: Vec<(String, String)>,
}

#[cfg(feature = "sqs")]
#[derive(Args, Debug)]
pub(crate) struct SqsOptions {
    /// The URL of a queue that the consumers read; may be repeated;
    /// region and credentials are found as by any AWS tool
    #[arg(
        help_heading = "SQS",
        long = "sqs",
        value_name = "QUEUE_URL",
        verbatim_doc_comment
    )]
    pub(crate) queues: Vec<String>,
    /// Where SQS is, if not at AWS [env: SQS_ENDPOINT]
    #[arg(help_heading = "SQS", long, value_name = "URL")]
    pub(crate) sqs_endpoint: Option<String>,
}

#[cfg(feature = "kafka")]
fn setting(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "write NAME=VALUE".to_owned())
}

fn horizon(text: &str) -> Result<ReplayHorizon, String> {
    let (name, time) = text.rsplit_once('=').ok_or("write NAME=TIME")?;
    if name.is_empty() {
        return Err("it has no name: say who publishes again".to_owned());
    }
    Ok(ReplayHorizon::new(name, duration(time)?))
}

/// A number and its unit: 30min, 12h, 3d.
fn duration(text: &str) -> Result<Duration, String> {
    let unreadable = || format!("{text:?} is no time: write 30min, 12h or 3d");
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .ok_or_else(unreadable)?;
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().map_err(|_| unreadable())?;
    let seconds: u64 = match unit.trim_start() {
        "s" => 1,
        "min" | "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(unreadable()),
    };
    let seconds = number.checked_mul(seconds).ok_or_else(unreadable)?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_horizon_is_a_name_and_a_time() {
        let read = |text| horizon(text).map(|horizon| (horizon.name, horizon.after.as_secs()));
        assert_eq!(read("webhooks=3d"), Ok(("webhooks".to_owned(), 259_200)));
        assert_eq!(read("topic a=b=90min"), Ok(("topic a=b".to_owned(), 5400)));
        for wrong in [
            "webhooks",
            "=3d",
            "w=",
            "w=3",
            "w=d",
            "w=3w",
            "w=99999999999999999999d",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
