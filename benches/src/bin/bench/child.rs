//! A contender's run, seen from outside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use oneffect_benches::contender::{FIRST, LAST};

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// From the first delivery to the commit of the last effect.
    pub(crate) wall: Duration,
    /// Of all threads, user and system, from the first delivery to the exit: what it takes to start
    /// and to join the group would count for more in a short run than in a long one.
    pub(crate) cpu: Duration,
    /// The most memory that was resident, from the start on.
    pub(crate) peak_bytes: u64,
}

/// Runs the program until it exits, and kills it when it has not by the deadline.
///
/// # Errors
/// When it does not start, fails, says nothing, or takes too long.
pub(crate) fn run(program: &Path, args: &[String], deadline: Duration) -> Result<Usage, String> {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let child = command
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let mut child = Killed(child);
    let pid = child.0.id();
    let stdout = child.0.stdout.take().ok_or("no stdout")?;

    // The lines are timed as they come.
    let (lines, timed) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let at = (Instant::now(), cpu(pid));
            if lines.send((line, at)).is_err() {
                return;
            }
        }
    });

    let give_up = Instant::now() + deadline;
    let mut peak_bytes = 0;
    while !exited(pid) {
        if Instant::now() > give_up {
            return Err(format!("not done after {} s", deadline.as_secs()));
        }
        peak_bytes = peak_bytes.max(high_water_mark(pid));
        thread::sleep(Duration::from_millis(10));
    }
    // It is not reaped yet, so its numbers are still there.
    let cpu_at_exit = cpu(pid);
    let status: ExitStatus = child.0.wait().map_err(|error| error.to_string())?;
    let _ = reader.join();
    if !status.success() {
        return Err(status.to_string());
    }
    let timed: Vec<_> = timed.iter().collect();
    let at = |wanted: &str| {
        let found = timed.iter().find(|(line, _)| line == wanted);
        found
            .map(|(_, at)| *at)
            .ok_or(format!("it never said '{wanted}'"))
    };
    let ((first, cpu_at_first), (last, _)) = (at(FIRST)?, at(LAST)?);
    Ok(Usage {
        wall: last.duration_since(first),
        cpu: cpu_at_exit.saturating_sub(cpu_at_first),
        peak_bytes,
    })
}

/// Does not outlive its run.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The fields of `/proc/PID/stat` from the third on; the second, the name, may hold blanks.
fn stat(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split_whitespace().map(str::to_owned).collect()
}

fn exited(pid: u32) -> bool {
    stat(pid)
        .first()
        .is_none_or(|state| state == "Z" || state == "X")
}

/// User and system time so far. The kernel counts finely and tells in hundredths of a second
/// (`USER_HZ`, which is 100 on every Linux that has a Rust toolchain of tier 1).
fn cpu(pid: u32) -> Duration {
    let fields = stat(pid);
    let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse().ok());
    let [user, system]: [u64; 2] = [11, 12].map(|field| ticks(field).unwrap_or(0));
    Duration::from_millis((user + system) * 10)
}

fn high_water_mark(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, deadline: Duration) -> Result<Usage, String> {
        run(
            Path::new("/bin/sh"),
            &["-c".into(), script.into()],
            deadline,
        )
    }

    #[test]
    fn a_run_is_timed_from_its_first_line_to_its_last() {
        let script = "echo hello; echo first; sleep 0.1; echo last; sleep 0.1";
        let usage = sh(script, Duration::from_mins(1)).unwrap();

        assert!(usage.wall > Duration::ZERO, "{usage:?}");
        assert!(usage.peak_bytes > 0);
    }

    #[test]
    fn a_run_that_works_uses_cpu() {
        let script = "echo first; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo last";
        let usage = sh(script, Duration::from_mins(1)).unwrap();

        assert!(usage.cpu > Duration::ZERO);
    }

    #[test]
    fn a_run_that_fails_says_nothing_or_hangs_is_an_error() {
        let long = Duration::from_mins(1);

        assert!(sh("echo first; echo last; exit 3", long).is_err());
        assert!(sh("echo first", long).unwrap_err().contains(LAST));
        assert!(sh("exec sleep 60", Duration::from_millis(100)).is_err());
    }
}
