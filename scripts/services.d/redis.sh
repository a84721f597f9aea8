# shellcheck shell=bash
# Redis without persistence: a killed server comes back empty, as a cache may.

REDIS_PORT=${REDIS_PORT:-16379}

redis_install() { need redis-server redis-server; }
redis_up() {
  redis_install
  mkdir -p "$STATE/redis"
  alive redis || spawn redis "$REDIS_PORT" redis-server --bind 127.0.0.1 --port "$REDIS_PORT" \
    --dir "$STATE/redis" --save '' --appendonly no --daemonize no
  await redis 10 redis-cli -h 127.0.0.1 -p "$REDIS_PORT" ping
}
redis_down() { stop redis; }
redis_crash() { stop redis KILL; }
redis_running() { alive redis; }
redis_port() { echo "$REDIS_PORT"; }
redis_version() { redis-server --version | sed 's/.* v=\([^ ]*\).*/\1/'; }
redis_env() { echo "export REDIS_URL=redis://127.0.0.1:$REDIS_PORT"; }
