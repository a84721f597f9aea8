//! What only a process can show: exit codes, streams, and that it finds itself without a terminal.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A SQLite file of its own, removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("oneffect-cli-{name}-{}.db", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn oneffect(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oneffect"));
        command.args(args).stdin(Stdio::null());
        command.env_remove("DATABASE_URL").env_remove("RUST_LOG");
        command.env("ONEFFECT_DATABASE", &self.0);
        command
    }

    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.oneffect(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        for extension in ["db", "db-wal", "db-shm"] {
            let _ = std::fs::remove_file(self.0.with_extension(extension));
        }
    }
}

#[test]
fn the_exit_code_says_how_it_ended() {
    let file = File::new("codes");

    let (code, _, err) = file.run(&["migrate", "status"]);
    assert_eq!(
        code,
        Some(2),
        "there is no file, and looking makes none: {err}"
    );
    assert!(!file.0.exists());
    assert_eq!(file.run(&["migrate", "up"]).0, Some(0));
    assert_eq!(file.run(&["migrate", "status"]).0, Some(0));
    assert_eq!(file.run(&["inspect", "x"]).0, Some(4));
    let (code, out, err) = file.run(&["migrate", "down", "--to", "0"]);
    assert_eq!((code, &*out), (Some(2), ""), "{err}");
    assert!(err.contains("--yes"), "{err}");
    assert_eq!(
        file.run(&["migrate", "down", "--to", "0", "--yes"]).0,
        Some(0)
    );
    assert_eq!(file.run(&["migrate", "status"]).0, Some(3));
    let file = File::new("broken");
    std::fs::write(&file.0, "no database").unwrap();
    assert_eq!(file.run(&["migrate", "status"]).0, Some(1));
}

#[test]
fn results_are_printed_and_errors_are_not() {
    let file = File::new("streams");

    let (_, out, err) = file.run(&["migrate", "up", "--json"]);
    assert!(out.ends_with("}\n") && err.is_empty(), "{out}{err}");
    let (_, out, err) = file.run(&["inspect", "x", "--json"]);
    assert!(
        out.is_empty() && err.contains("\"exit_code\":4"),
        "{out}{err}"
    );
    for text in [
        &*file.run(&["migrate", "status"]).1,
        &*file.run(&["--help"]).1,
        &*err,
    ] {
        assert!(
            !text.contains('\u{1b}'),
            "colours are for terminals: {text:?}"
        );
    }
}

/// `oneffect migrate sql | head -1`
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let file = File::new("pipe");
    let mut command = file.oneffect(&["migrate", "sql", "--from", "0"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();

    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
