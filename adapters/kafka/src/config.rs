//! What can be set, and what must not be.

use std::collections::BTreeMap;
use std::time::Duration;

use oneffect_core::SourceError;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use tracing::warn;

use crate::TARGET;

/// How a [`Kafka`](crate::Kafka) source behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KafkaConfig {
    /// How long a revocation waits for running units of work before partitions are given away.
    /// Never more than half of `max.poll.interval.ms`, after which the broker would take them.
    /// Default: 8 s.
    pub drain: Duration,
    /// How long settled offsets may wait to be committed. A crash makes the broker deliver again
    /// what was settled since; the inbox absorbs it. Default: 1 s.
    pub commit_interval: Duration,
    /// How long [`open`](oneffect_core::Source::open) tries to reach a broker and to find the
    /// topics. Default: 10 s.
    pub connect_timeout: Duration,
    /// Settings of librdkafka, by its own names: TLS, SASL, fetch sizes and the like. Those that
    /// would break the guarantee are refused when the source is opened. Default: none, see
    /// [`Kafka::set`](crate::Kafka::set) for what this source sets by itself.
    pub properties: BTreeMap<String, String>,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(8),
            commit_interval: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(10),
            properties: BTreeMap::new(),
        }
    }
}

/// librdkafka's default for `max.poll.interval.ms`.
const MAX_POLL_INTERVAL: Duration = Duration::from_mins(5);

/// How long a member may be silent before the group goes on without it. librdkafka's 45 s would
/// leave a killed member's work lying for as long.
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

impl KafkaConfig {
    /// Whether the settings fit together and keep the guarantee. Called when the source is opened.
    ///
    /// # Errors
    /// [`SourceError::Misconfigured`] with the setting and the reason.
    pub fn validate(&self) -> Result<(), SourceError> {
        if self.connect_timeout.is_zero() {
            return Err(SourceError::misconfigured("connect_timeout is zero"));
        }
        if self.commit_interval.is_zero() {
            return Err(SourceError::misconfigured("commit_interval is zero"));
        }
        for (key, value) in &self.properties {
            if let Some(reason) = refusal(key, value) {
                return Err(SourceError::misconfigured(format!(
                    "`{key}` = `{value}` is refused: {reason}"
                )));
            }
        }
        self.millis("session.timeout.ms", SESSION_TIMEOUT)?;
        self.max_poll_interval().map(|_| ())
    }

    /// How long a revocation may take.
    pub(crate) fn drain_limit(&self) -> Duration {
        let max_poll_interval = self.max_poll_interval().unwrap_or(MAX_POLL_INTERVAL);
        self.drain.min(max_poll_interval / 2)
    }

    fn max_poll_interval(&self) -> Result<Duration, SourceError> {
        self.millis("max.poll.interval.ms", MAX_POLL_INTERVAL)
    }

    fn millis(&self, key: &str, default: Duration) -> Result<Duration, SourceError> {
        let Some(value) = self.properties.get(key) else {
            return Ok(default);
        };
        match value.trim().parse() {
            Ok(millis) => Ok(Duration::from_millis(millis)),
            Err(error) => Err(SourceError::misconfigured(format!(
                "`{key}` = `{value}` is not a number of milliseconds"
            ))
            .because(error)),
        }
    }

    /// What librdkafka is given: our defaults, the user's settings, and what is not negotiable.
    pub(crate) fn client_config(&self, brokers: &str, group: &str) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("client.id", "oneffect");
        client.set("isolation.level", "read_committed");
        client.set("auto.offset.reset", "earliest");
        // Counts against memory in flight; librdkafka's 64 MiB are more than the runtime's limit.
        client.set("queued.max.messages.kbytes", "16384");
        // By default a full queue is looked at again only after a second, in which a consumer that
        // handles its 16 MiB faster than that would idle.
        client.set("fetch.queue.backoff.ms", "20");
        let property = |key: &str| self.properties.get(key).map(String::as_str);
        if property("group.protocol")
            .is_none_or(|protocol| protocol.eq_ignore_ascii_case("classic"))
        {
            // With the `consumer` protocol (KIP-848) the broker decides both, and librdkafka
            // refuses to be given them.
            client.set("partition.assignment.strategy", "cooperative-sticky");
            let max_poll_interval = self.max_poll_interval().unwrap_or(MAX_POLL_INTERVAL);
            let longest = SESSION_TIMEOUT.min(max_poll_interval);
            let session_timeout = self
                .millis("session.timeout.ms", longest)
                .unwrap_or(longest);
            client.set(
                "session.timeout.ms",
                session_timeout.as_millis().to_string(),
            );
            // Left at its 3 s, a shorter session would end before its first heartbeat.
            let heartbeat = (session_timeout / 3).min(Duration::from_secs(3));
            client.set("heartbeat.interval.ms", heartbeat.as_millis().to_string());
        }
        let tls = property("security.protocol")
            .is_some_and(|protocol| protocol.to_ascii_lowercase().ends_with("ssl"));
        let has_ca = self.properties.keys().any(|key| key.starts_with("ssl.ca."));
        if tls && !has_ca {
            // A statically linked OpenSSL looks for authorities where it was built, not here.
            client.set("ssl.ca.location", "probe");
        }
        for (key, value) in &self.properties {
            client.set(key, value);
        }
        client.set("bootstrap.servers", brokers);
        client.set("group.id", group);
        client.set("enable.auto.commit", "false");
        client.set("enable.auto.offset.store", "false");
        client.set("enable.partition.eof", "false");
        client.set_log_level(RDKafkaLogLevel::Info);
        client
    }

    /// Tells of settings that are allowed, but rarely meant.
    pub(crate) fn warn(&self) {
        let isolation = self.properties.get("isolation.level");
        if isolation.is_some_and(|level| level == "read_uncommitted") {
            warn!(target: TARGET, "isolation.level = read_uncommitted: events of aborted transactions will take effect");
        }
    }
}

/// Why a setting is refused, if it is.
fn refusal(key: &str, value: &str) -> Option<&'static str> {
    let off = matches!(
        value.trim().to_ascii_lowercase().as_str(),
        "false" | "f" | "0"
    );
    match key {
        "enable.auto.commit" | "auto.commit.enable" if !off => {
            Some("it commits offsets of events that are not settled, which a crash then loses")
        }
        "enable.auto.offset.store" if !off => {
            Some("it marks records as done when they are read, not when they are settled")
        }
        "enable.partition.eof" if !off => {
            Some("the end of a partition is no event, and the source has no use for it")
        }
        "offset.store.method" if value != "broker" => {
            Some("offsets belong to the group's coordinator, which fences members that have left")
        }
        "bootstrap.servers" | "metadata.broker.list" => {
            Some("the brokers are an argument of `Kafka::new`")
        }
        "group.id" => Some("the group is an argument of `Kafka::new`"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(properties: &[(&str, &str)]) -> KafkaConfig {
        let properties = properties.iter();
        KafkaConfig {
            properties: properties
                .map(|&(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            ..KafkaConfig::default()
        }
    }

    #[test]
    fn settings_that_break_the_guarantee_are_refused_with_the_reason() {
        for (key, value) in [
            ("enable.auto.commit", "true"),
            ("enable.auto.offset.store", "true"),
            ("enable.partition.eof", "true"),
            ("offset.store.method", "file"),
            ("group.id", "other"),
            ("bootstrap.servers", "elsewhere:9092"),
        ] {
            let refused = with(&[(key, value)]).validate();
            let Err(SourceError::Misconfigured { message, .. }) = refused else {
                panic!("{key} = {value} was not refused");
            };
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn settings_that_only_say_what_holds_anyway_are_allowed() {
        let config = with(&[
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "FALSE"),
            ("fetch.min.bytes", "1000"),
        ]);
        assert!(config.validate().is_ok());
    }

    /// Field case 017: the effective default.
    #[test]
    fn records_of_aborted_transactions_are_not_read_unless_asked_for() {
        let client = KafkaConfig::default().client_config("b", "g");
        assert_eq!(client.get("isolation.level"), Some("read_committed"));
        let client = with(&[("isolation.level", "read_uncommitted")]).client_config("b", "g");
        assert_eq!(client.get("isolation.level"), Some("read_uncommitted"));
    }

    #[test]
    fn what_is_not_negotiable_is_set_last() {
        let client = KafkaConfig::default().client_config("brokers", "group");
        assert_eq!(client.get("bootstrap.servers"), Some("brokers"));
        assert_eq!(client.get("group.id"), Some("group"));
        assert_eq!(client.get("enable.auto.commit"), Some("false"));
        assert_eq!(client.get("enable.auto.offset.store"), Some("false"));
    }

    #[test]
    fn the_new_group_protocol_is_given_nothing_that_it_refuses() {
        let classic = KafkaConfig::default().client_config("b", "g");
        assert_eq!(classic.get("session.timeout.ms"), Some("10000"));
        let new = with(&[("group.protocol", "consumer")]).client_config("b", "g");
        assert_eq!(new.get("session.timeout.ms"), None);
        assert_eq!(new.get("partition.assignment.strategy"), None);
    }

    #[test]
    fn a_session_never_lasts_longer_than_the_poll_interval() {
        let client = with(&[("max.poll.interval.ms", "6000")]).client_config("b", "g");
        assert_eq!(client.get("session.timeout.ms"), Some("6000"));
    }

    #[test]
    fn a_session_outlasts_some_heartbeats_however_short_it_is() {
        for (session, heartbeat) in [("45000", "3000"), ("10000", "3000"), ("1500", "500")] {
            let client = with(&[("session.timeout.ms", session)]).client_config("b", "g");
            assert_eq!(client.get("session.timeout.ms"), Some(session));
            assert_eq!(client.get("heartbeat.interval.ms"), Some(heartbeat));
        }
    }

    #[test]
    fn a_revocation_takes_at_most_half_of_the_poll_interval() {
        assert_eq!(KafkaConfig::default().drain_limit(), Duration::from_secs(8));
        let short = with(&[("max.poll.interval.ms", "6000")]);
        assert_eq!(short.drain_limit(), Duration::from_secs(3));
        assert!(
            with(&[("max.poll.interval.ms", "soon")])
                .validate()
                .is_err()
        );
    }

    #[test]
    fn authorities_are_looked_for_unless_they_are_named() {
        let tls = with(&[("security.protocol", "SASL_SSL")]).client_config("b", "g");
        assert_eq!(tls.get("ssl.ca.location"), Some("probe"));
        let named = with(&[("security.protocol", "ssl"), ("ssl.ca.location", "/ca.pem")]);
        let named = named.client_config("b", "g");
        assert_eq!(named.get("ssl.ca.location"), Some("/ca.pem"));
        let plain = KafkaConfig::default().client_config("b", "g");
        assert_eq!(plain.get("ssl.ca.location"), None);
    }
}
