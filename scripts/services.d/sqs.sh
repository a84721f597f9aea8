# shellcheck shell=bash
# SQS (and SNS): LocalStack, without Docker. Its queues are in memory.

SQS_PORT=${SQS_PORT:-14566}
SQS_PYTHON=${SQS_PYTHON:-python3} # 3.11 or newer
LOCALSTACK_VERSION=${LOCALSTACK_VERSION:-4.13.1}
SQS_VENV=$OPT/localstack-$LOCALSTACK_VERSION

sqs_install() {
  need curl curl
  [[ -e $SQS_VENV/.complete ]] && return
  need "$SQS_PYTHON" python3
  "$SQS_PYTHON" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
  "$SQS_PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "LocalStack needs Python 3.11 or newer: name one in SQS_PYTHON"
  fetch localstack "fetching LocalStack $LOCALSTACK_VERSION (200 MB)" sqs_fetch
}
# Its dependencies are pinned too: newer ones of several keep it from starting.
sqs_fetch() {
  rm -rf "$SQS_VENV" &&
    "$SQS_PYTHON" -m venv "$SQS_VENV" &&
    "$SQS_VENV/bin/pip" install -q "localstack-core[base-runtime]==$LOCALSTACK_VERSION" \
      -c "$PARTS/sqs-constraints.txt" &&
    touch "$SQS_VENV/.complete"
}

sqs_healthy() {
  curl -sf -m 2 "http://127.0.0.1:$SQS_PORT/_localstack/health" | grep '"sqs": *"\(running\|available\)"'
}

sqs_up() {
  sqs_install
  alive sqs || sqs_spawn
  await sqs 90 sqs_healthy
  # The first call parses the service catalogue; take that out of the first test.
  curl -sf -m 60 -o /dev/null "http://127.0.0.1:$SQS_PORT/?Action=ListQueues" \
    -H 'Authorization: AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/sqs/aws4_request' || true
}
sqs_spawn() {
  mkdir -p "$SQS_VENV/files" # caches, kept for the next start
  spawn sqs "$SQS_PORT" env -u AWS_PROFILE SQS_HOST=127.0.0.1 \
    OVERRIDE_IN_DOCKER=0 FILESYSTEM_ROOT="$SQS_VENV/files" \
    SERVICES=sqs,sns EAGER_SERVICE_LOADING=1 PROVIDER_OVERRIDE_SNS=v2 \
    SKIP_SSL_CERT_DOWNLOAD=1 DISABLE_EVENTS=1 DNS_ADDRESS=0 LS_LOG=warning \
    GATEWAY_LISTEN="127.0.0.1:$SQS_PORT" LOCALSTACK_HOST="127.0.0.1:$SQS_PORT" \
    SQS_ENDPOINT_STRATEGY=path SQS_DISABLE_CLOUDWATCH_METRICS=1 \
    "$SQS_VENV/bin/python" "$PARTS/sqs.py"
}
sqs_down() { stop sqs KILL; } # nothing to save, and TERM takes 6 s
sqs_crash() { stop sqs KILL; }
sqs_running() { alive sqs; }
sqs_port() { echo "$SQS_PORT"; }
sqs_version() { echo "$LOCALSTACK_VERSION"; }
sqs_env() {
  echo "export SQS_ENDPOINT=http://127.0.0.1:$SQS_PORT"
  echo "export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1"
}
