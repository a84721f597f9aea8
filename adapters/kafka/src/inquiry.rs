//! Asking the brokers for their settings, apart from the consumer and before it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::oneshot;

use crate::config::KafkaConfig;
use crate::context::block_on;
use crate::topics::is_pattern;

/// Settings by their names, or why they are not known.
pub(crate) type Settings = Result<BTreeMap<String, String>, String>;

/// What is asked about, and how it is reached.
#[derive(Clone, Debug)]
pub(crate) struct Inquiry {
    pub(crate) brokers: String,
    pub(crate) group: String,
    pub(crate) topics: Vec<String>,
    pub(crate) config: KafkaConfig,
}

/// What the brokers answered.
#[derive(Debug)]
pub(crate) struct Answers {
    /// In the order of the topics.
    pub(crate) topics: Vec<Settings>,
    pub(crate) broker: Settings,
    /// Why nobody answers, where nobody does.
    pub(crate) away: Option<String>,
    /// Topics that the brokers do not list.
    pub(crate) missing: Vec<String>,
}

impl Inquiry {
    /// Runs something on a thread of its own: the client's calls block, and its end can take long.
    /// `None` when the thread has died.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the thread to end by itself, within the timeouts.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        ask: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let thread = thread::Builder::new().name("oneffect-kafka-ask".to_owned());
        let started = thread.spawn(move || {
            let _ = answer.send(ask(&self));
        });
        started.ok()?;
        answered.await.ok()
    }

    /// Nothing of it is logged: what goes wrong is in the answers.
    pub(crate) fn client_config(&self) -> ClientConfig {
        let mut client = self.config.client_config(&self.brokers, &self.group);
        client.set_log_level(RDKafkaLogLevel::Emerg);
        client
    }

    /// The settings of the topics, and of one broker for all.
    pub(crate) fn settings(&self) -> Answers {
        let all = |reason: String| Answers {
            topics: vec![Err(reason.clone()); self.topics.len()],
            broker: Err(reason.clone()),
            away: Some(reason),
            missing: Vec::new(),
        };
        let client: Result<AdminClient<Quiet>, _> =
            self.client_config().create_with_context(Quiet::default());
        let client = match client {
            Ok(client) => client,
            Err(error) => return all(format!("no client can be made: {error}")),
        };
        // Says early whether anybody is there.
        let timeout = self.config.connect_timeout;
        let metadata = match client.inner().fetch_metadata(None, timeout) {
            Ok(metadata) => metadata,
            Err(error) => {
                let reason = client.inner().context().reason(&error);
                return all(format!("no broker of {} answers: {reason}", self.brokers));
            }
        };
        let names = self.topics.iter().map(String::as_str);
        let topics: Vec<_> = names.map(ResourceSpecifier::Topic).collect();
        let broker = match metadata.brokers().first() {
            None => Err("no broker is known".to_owned()),
            Some(broker) => self
                .describe(&client, &[ResourceSpecifier::Broker(broker.id())])
                .pop()
                .unwrap_or_else(|| Err(NO_ANSWER.to_owned())),
        };
        let mut topics = self.describe(&client, &topics);
        topics.resize(self.topics.len(), Err(NO_ANSWER.to_owned()));
        let is_listed = |name: &str| metadata.topics().iter().any(|topic| topic.name() == name);
        let asked = self.topics.iter().filter(|topic| !is_pattern(topic));
        Answers {
            topics,
            broker,
            away: None,
            missing: asked.filter(|name| !is_listed(name)).cloned().collect(),
        }
    }

    fn describe(
        &self,
        client: &AdminClient<Quiet>,
        what: &[ResourceSpecifier<'_>],
    ) -> Vec<Settings> {
        let timeout = self.config.connect_timeout;
        let options = AdminOptions::new().request_timeout(Some(timeout));
        let answers = client.describe_configs(what, &options);
        // The client answers in time; this is for one that does not.
        let deadline = Instant::now() + timeout + Duration::from_secs(1);
        let reason = match block_on(answers, deadline, || false) {
            Some(Ok(answers)) => return answers.into_iter().map(settings_of).collect(),
            Some(Err(error)) => client.inner().context().reason(&error),
            None => NO_ANSWER.to_owned(),
        };
        vec![Err(reason); what.len()]
    }
}

const NO_ANSWER: &str = "the brokers have not answered in time";

fn settings_of(answer: Result<ConfigResource, Code>) -> Settings {
    match answer {
        Ok(resource) => Ok(resource
            .entries
            .into_iter()
            .filter_map(|entry| Some((entry.name, entry.value?)))
            .collect()),
        Err(Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed) => Err(
            "the broker denies it: the client needs DESCRIBE_CONFIGS on the topic, and on the \
             cluster for a broker's settings"
                .to_owned(),
        ),
        Err(code) => Err(code.to_string()),
    }
}

/// Keeps to itself what goes wrong.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Mutex<Option<String>>);

impl Quiet {
    /// What went wrong, as far as the client has said.
    fn reason(&self, error: &KafkaError) -> String {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.clone().unwrap_or_else(|| error.to_string())
    }
}

impl ClientContext for Quiet {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        // It follows from others.
        if error.rdkafka_error_code() != Some(Code::AllBrokersDown) {
            let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *said = Some(reason.to_owned());
        }
    }
}

impl rdkafka::consumer::ConsumerContext for Quiet {}
