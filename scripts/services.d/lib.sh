# shellcheck shell=bash
# Shared by the service files: where things lie, and how a process is started, awaited and stopped.

STATE=${SERVICES_DIR:-$(dirname "$HERE")/.services}
OPT=${SERVICES_OPT:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/oneffect-services}
mkdir -p "$STATE/run" "$STATE/log" "$OPT"
STATE=$(cd "$STATE" && pwd)
OPT=$(cd "$OPT" && pwd)

say() { printf 'services: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# lock: one command at a time changes things, since two that fetch or start the same would collide.
# The lock lies with what was fetched, so it holds between checkouts as well: they share the ports.
lock() {
  exec 9>"$OPT/lock"
  flock -n 9 && return
  say "waiting for another 'services' command"
  flock -w 600 9 || die "another 'services' command has held $OPT/lock for 10 minutes"
}

# fetch LOG TEXT COMMAND...: runs a slow command with its output in log/LOG.log, and says that it is
# still at work every 15 s, so that nobody takes a download for a hang.
fetch() {
  local log=$STATE/log/$1.log text=$2 start=$SECONDS next=$((SECONDS + 15)) pid
  shift 2
  say "$text ..."
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    ((SECONDS < next)) || {
      say "$text ... $((SECONDS - start)) s"
      next=$((SECONDS + 15))
    }
  done
  wait "$pid" || {
    tail -n 20 "$log" >&2
    die "$text failed; the whole log is $log"
  }
  say "$text: done in $((SECONDS - start)) s"
}

# need COMMAND PACKAGE: installs a Debian package when its command is missing.
need() {
  command -v "$1" >/dev/null || apt_install "$2"
}

apt_install() {
  command -v apt-get >/dev/null ||
    die "$1 is missing, and this is no Debian: install what has that name here, then try again"
  [[ $EUID == 0 ]] || die "$1 is missing: run 'sudo apt-get install $1', then try again"
  # Without this, packages of servers start a server of their own on the default port.
  local policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    # shellcheck disable=SC2064
    trap "rm -f $policy" EXIT
  fi
  fetch "apt-$1" "installing Debian package $1" apt_get "$1"
  [[ -z $(trap -p EXIT) ]] || { rm -f "$policy"; trap - EXIT; }
}

# Package lists may be absent or stale: they are fetched when the install fails without.
apt_get() {
  export DEBIAN_FRONTEND=noninteractive
  set -- apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 "$1"
  "$@" || { apt-get update -q && "$@"; }
}

# A process is its pid and its start time, so that a reused pid is never taken for ours.
# A zombie counts as dead: in a container nobody may reap it for seconds.
started_at() { awk '$3 != "Z" { print $22 }' "/proc/$1/stat" 2>/dev/null || true; }
alive() {
  local pid at
  read -r pid at 2>/dev/null <"$STATE/run/$1.pid" || return 1
  [[ -n $at && $(started_at "$pid") == "$at" ]]
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# port_free NAME PORT: an address in use is told before the start, since some servers bury it in a
# page of log, and one would pass for ready while another checkout's answers.
port_free() {
  ! port_open "$2" ||
    die "port $2 of $1 is taken: by another checkout's $1 (stop it there), or choose another port"
}

# spawn NAME PORT COMMAND...: starts a daemon; its output goes to log/NAME.log. It must not inherit
# the lock (9), which would then be held as long as it lives.
spawn() {
  local name=$1
  port_free "$name" "$2"
  shift 2
  setsid "$@" >"$STATE/log/$name.log" 2>&1 </dev/null 9>&- &
  echo "$! $(started_at $!)" >"$STATE/run/$name.pid"
}

# await NAME SECONDS PROBE...: returns when the probe succeeds; fails at once when the process died.
await() {
  local name=$1 deadline=$((SECONDS + $2)) log=$STATE/log/$1.log
  shift 2
  until "$@" >/dev/null 2>&1; do
    alive "$name" || { tail -n 20 "$log" >&2; die "$name died while starting; its log is $log"; }
    ((SECONDS < deadline)) || { tail -n 20 "$log" >&2; die "$name is not ready in time; its log is $log"; }
    sleep 0.1
  done
}

# stop NAME [SIGNAL]: TERM, then KILL after 10 s; `stop NAME KILL` is the crash.
stop() {
  local pid
  if alive "$1"; then
    read -r pid _ <"$STATE/run/$1.pid"
    kill "-${2:-TERM}" "$pid" || true
    for _ in $(seq 100); do alive "$1" || break; sleep 0.1; done
    if alive "$1"; then kill -KILL "$pid"; fi
  fi
  rm -f "$STATE/run/$1.pid"
}
