//! What a reader must know of the machine to make anything of the numbers.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use sqlx::postgres::PgPool;

/// A line each.
pub(crate) async fn notes(postgres: &PgPool) -> Result<Vec<String>, String> {
    let setting = async |name: &str| -> Result<String, String> {
        sqlx::query_scalar("SELECT current_setting($1)")
            .bind(name)
            .fetch_one(postgres)
            .await
            .map_err(|error| error.to_string())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let sync =
        sync_latency().map_or_else(|error| error.to_string(), |median| format!("{median:?}"));
    Ok(vec![
        format!("{cores} cores ({}), {} of memory", processor(), memory()),
        format!("Linux {}", read("/proc/sys/kernel/osrelease")),
        format!(
            "PostgreSQL {}, fsync {}, synchronous_commit {}, shared_buffers {}",
            setting("server_version").await?,
            setting("fsync").await?,
            setting("synchronous_commit").await?,
            setting("shared_buffers").await?,
        ),
        format!("fdatasync of 8 KiB in the temporary directory: median {sync}"),
        format!("load average before: {}", load()),
    ])
}

/// How busy the machine is: over 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let load = read("/proc/loadavg");
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn processor() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let name = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = name.and_then(|line| line.split_once(": "));
    name.map_or("unknown", |(_, name)| name).to_owned()
}

fn memory() -> String {
    let meminfo = read("/proc/meminfo");
    let kib = meminfo
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok());
    format!("{} GiB", kib.unwrap_or(0) >> 20)
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The server's data lie in the temporary directory too (`scripts/services`).
fn sync_latency() -> io::Result<Duration> {
    let path = std::env::temp_dir().join(format!("oneffect-bench-sync-{}", std::process::id()));
    let measured = File::create(&path).and_then(|mut file| {
        let mut took = Vec::new();
        for _ in 0..200 {
            let begun = Instant::now();
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&[0; 8192])?;
            file.sync_data()?;
            took.push(begun.elapsed());
        }
        took.sort_unstable();
        Ok(took[took.len() / 2])
    });
    fs::remove_file(&path)?;
    measured
}
