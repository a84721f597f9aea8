//! Where the command line says that events come from.

use oneffect_core::Source;

use crate::code::Unusable;
use crate::console::Console;
use crate::options::doctor::Doctor;

#[cfg_attr(
    not(any(feature = "kafka", feature = "sqs")),
    allow(unused_variables, unused_mut, reason = "built without any broker")
)]
pub(super) fn named(doctor: &Doctor, console: &Console) -> Result<Vec<Box<dyn Source>>, Unusable> {
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    #[cfg(feature = "kafka")]
    sources.extend(kafka(&doctor.kafka, console)?);
    #[cfg(feature = "sqs")]
    sources.extend(sqs(&doctor.sqs, console));
    Ok(sources)
}

#[cfg(feature = "kafka")]
fn kafka(
    options: &crate::options::doctor::KafkaOptions,
    console: &Console,
) -> Result<Option<Box<dyn Source>>, Unusable> {
    use oneffect_kafka::Kafka;

    use crate::database::PATIENCE;

    let (topics, Some(group)) = (&options.topics, &options.group) else {
        if options.kafka.is_some() {
            return Err(Unusable(
                "--kafka needs --topic and --group: what the consumers read".to_owned(),
            ));
        }
        return Ok(None);
    };
    let brokers = options
        .kafka
        .clone()
        .or_else(|| console.variable("KAFKA_BROKERS"));
    let Some(brokers) = brokers else {
        return Err(Unusable(
            "no brokers: give --kafka HOST:PORT, or set KAFKA_BROKERS".to_owned(),
        ));
    };
    let mut kafka = Kafka::new(&brokers, group, topics.iter().cloned()).connect_timeout(PATIENCE);
    for (name, value) in &options.settings {
        kafka = kafka.set(name, value);
    }
    Ok(Some(Box::new(kafka)))
}

#[cfg(feature = "sqs")]
fn sqs(
    options: &crate::options::doctor::SqsOptions,
    console: &Console,
) -> impl Iterator<Item = Box<dyn Source>> {
    use oneffect_sqs::Sqs;

    let endpoint = options
        .sqs_endpoint
        .clone()
        .or_else(|| console.variable("SQS_ENDPOINT"));
    options.queues.iter().map(move |url| {
        let mut sqs = Sqs::new(url);
        if let Some(endpoint) = &endpoint {
            sqs = sqs.endpoint(endpoint);
        }
        Box::new(sqs) as Box<dyn Source>
    })
}
