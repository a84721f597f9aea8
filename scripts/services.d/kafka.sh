# shellcheck shell=bash
# Kafka: one node that is broker and controller (KRaft).
# Topics are not created by use: a misspelt one must fail.

KAFKA_VERSION=${KAFKA_VERSION:-4.4.0}
KAFKA_PORT=${KAFKA_PORT:-19092} # +0 plaintext, +1 controller, +2 TLS with SCRAM, +3 behind a proxy at +4
KAFKA_HEAP=${KAFKA_HEAP:-256m}
KAFKA_EXTRA=${KAFKA_EXTRA:-} # more lines for server.properties
KAFKA_LIBS=$OPT/kafka-$KAFKA_VERSION
KAFKA_CLUSTER=MkU3OEVBNTcwNTJENDM2Qk # any 16 bytes in base64

kafka_install() {
  need java default-jre-headless
  need kcat kcat
  [[ -e $KAFKA_LIBS/.complete ]] && return
  need mvn maven
  fetch maven "fetching Kafka $KAFKA_VERSION (44 MB)" mvn -q -B -f "$PARTS/kafka-pom.xml" \
    "-Dkafka.version=$KAFKA_VERSION" dependency:copy-dependencies "-DoutputDirectory=$KAFKA_LIBS"
  touch "$KAFKA_LIBS/.complete"
}

kafka_java() {
  java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -cp "$KAFKA_LIBS/*" "$@"
}

# One self-signed certificate for all listeners; clients trust tls/ca.pem.
kafka_tls() {
  local dir=$STATE/tls
  [[ -e $dir/ca.pem ]] && return
  mkdir -p "$dir"
  keytool -genkeypair -alias broker -keyalg EC -groupname secp256r1 -validity 3650 \
    -dname CN=localhost -ext SAN=dns:localhost,ip:127.0.0.1 -ext bc:c \
    -keystore "$dir/broker.p12" -storetype PKCS12 -storepass changeit 2>/dev/null
  keytool -exportcert -rfc -alias broker -keystore "$dir/broker.p12" -storepass changeit \
    >"$dir/ca.pem" 2>/dev/null
}

# Written anew for each start, so that another port or KAFKA_EXTRA holds from the next one.
kafka_configure() {
  mkdir -p "$STATE/kafka"
  cat >"$STATE/kafka/server.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((KAFKA_PORT + 1))
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,PROXIED:PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT,CONTROLLER://127.0.0.1:$((KAFKA_PORT + 1)),SECURE://127.0.0.1:$((KAFKA_PORT + 2)),PROXIED://127.0.0.1:$((KAFKA_PORT + 3))
# What comes in through a proxy must be sent back to the proxy: this listener advertises port + 4.
advertised.listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT,SECURE://127.0.0.1:$((KAFKA_PORT + 2)),PROXIED://127.0.0.1:$((KAFKA_PORT + 4))
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.ssl.keystore.location=$STATE/tls/broker.p12
listener.name.secure.ssl.keystore.password=changeit
log.dirs=$STATE/kafka/data
auto.create.topics.enable=false
num.partitions=4
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.min.isr=1
# Groups form at once, and may ask for short session timeouts.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=500
group.consumer.assignment.interval.ms=0
# A dead broker is noticed in 3 s rather than 9.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# Compaction and retention act within seconds, given small segment.ms or segment.bytes on the topic.
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=8388608
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=1000
log.index.size.max.bytes=1048576
num.network.threads=2
num.io.threads=4
$KAFKA_EXTRA
EOF
}

kafka_format() {
  kafka_java kafka.tools.StorageTool format -t "$KAFKA_CLUSTER" -c "$STATE/kafka/server.properties" \
    --add-scram 'SCRAM-SHA-256=[name=oneffect,password=oneffect]' \
    --add-scram 'SCRAM-SHA-512=[name=oneffect,password=oneffect]' \
    >"$STATE/log/kafka-format.log" 2>&1 || {
    tail -n 20 "$STATE/log/kafka-format.log" >&2
    die "formatting Kafka's storage failed"
  }
  touch "$STATE/kafka/.formatted"
}

kafka_spawn() {
  kafka_configure
  [[ -e $STATE/kafka/.formatted ]] || kafka_format
  spawn kafka "$KAFKA_PORT" java "-Xms$KAFKA_HEAP" "-Xmx$KAFKA_HEAP" -XX:+UseSerialGC \
    -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Dorg.slf4j.simpleLogger.defaultLogLevel=warn \
    -cp "$KAFKA_LIBS/*" kafka.Kafka "$STATE/kafka/server.properties"
}

kafka_ready() {
  port_open "$KAFKA_PORT" || return # kcat itself waits for its whole -m when the port is closed
  kcat -b "127.0.0.1:$KAFKA_PORT" -L -m 2 | grep '^  broker 1 at '
}

kafka_up() {
  kafka_install
  kafka_tls
  alive kafka || kafka_spawn
  await kafka 60 kafka_ready
}
kafka_down() { stop kafka; }
kafka_crash() { stop kafka KILL; }
kafka_running() { alive kafka; }
kafka_port() { echo "$KAFKA_PORT"; }
kafka_version() { echo "$KAFKA_VERSION"; }
kafka_env() {
  echo "export KAFKA_BROKERS=127.0.0.1:$KAFKA_PORT"
  echo "export KAFKA_PROXY_UPSTREAM=127.0.0.1:$((KAFKA_PORT + 3)) KAFKA_PROXY_LISTEN=127.0.0.1:$((KAFKA_PORT + 4))"
  printf 'export KAFKA_SECURE_BROKERS=127.0.0.1:%s KAFKA_USER=oneffect KAFKA_PASSWORD=oneffect KAFKA_CA=%q\n' \
    $((KAFKA_PORT + 2)) "$STATE/tls/ca.pem"
}
