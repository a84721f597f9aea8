//! What `--help` says, and what is said to those who use it wrongly.

use oneffect_cli::Code;
use oneffect_core::DeadLetterKind;

use super::{Ran, run_with};

async fn bare(command: &[&str]) -> Ran {
    run_with(Vec::new(), command, None).await
}

/// Every command, by walking the help.
const COMMANDS: &[&[&str]] = &[
    &["migrate"],
    &["migrate", "up"],
    &["migrate", "down"],
    &["migrate", "status"],
    &["migrate", "sql"],
    &["doctor"],
    &["window"],
    &["inbox"],
    &["inspect"],
    &["dead-letters"],
    &["dead-letters", "list"],
    &["dead-letters", "show"],
    &["dead-letters", "redrive"],
    &["dead-letters", "discard"],
    &["maintain"],
];

#[tokio::test]
async fn help_has_examples_for_every_command() {
    for command in COMMANDS {
        let help = bare(&[command, &["--help"][..]].concat()).await;

        assert_eq!(help.code, Code::Fine, "{command:?}");
        assert!(help.err.is_empty(), "{help:?}");
        for part in ["Usage:", "Examples:\n", "--database", "--json"] {
            assert!(
                help.out.contains(part),
                "{command:?} has no {part}:\n{}",
                help.out
            );
        }
        let example = format!("oneffect {}", command.join(" "));
        assert!(help.out.matches(&example).count() >= 2, "{}", help.out);
        for line in help.out.lines() {
            assert!(
                line.chars().count() <= 100,
                "{command:?} is too wide: {line}"
            );
        }
    }
}

#[tokio::test]
async fn help_documents_the_exit_codes_and_names_every_command() {
    for help in ["-h", "--help"] {
        let help = bare(&[help]).await;
        assert_eq!(help.code, Code::Fine);
        for line in help.out.lines() {
            assert!(line.chars().count() <= 100, "too wide: {line}");
        }
        for code in 0..=4 {
            assert!(help.out.contains(&format!("\n  {code}  ")), "{}", help.out);
        }
        for [command, ..] in COMMANDS.iter().map(|command| [command[0]]) {
            assert!(help.out.contains(&format!("\n  {command}")), "{}", help.out);
        }
    }
}

#[tokio::test]
async fn a_command_line_that_cannot_work_is_a_usage_error() {
    for (command, says) in [
        (&["migrate", "status"][..], "ONEFFECT_DATABASE"),
        (&["inspect", "x", "--database", "mysql://h/d"], "mysql"),
        (
            &["inspect", "x", "--database", "/nowhere/ledger.db"],
            "migrate up",
        ),
        (
            &["inspect", "x", "--database", "x.db", "--schema", "s"],
            "--schema",
        ),
        (&["inspect", "", "--database", "x.db"], "empty"),
        (&["migrate", "down", "--database", "x.db"], "--to"),
        (&["frobnicate"], "frobnicate"),
    ] {
        let ran = bare(command).await;
        assert_eq!(ran.code, Code::Usage, "{command:?} {ran:?}");
        assert!(ran.err.contains(says), "{command:?} {ran:?}");
        assert_eq!(ran.out, "");
    }
}

#[tokio::test]
async fn help_and_errors_name_every_kind_of_dead_letter() {
    let help = bare(&["dead-letters", "list", "--help"]).await;
    let wrong = bare(&["dead-letters", "list", "--kind", "odd"]).await;

    assert_eq!(wrong.code, Code::Usage);
    for kind in DeadLetterKind::ALL {
        assert!(help.out.contains(kind.as_str()), "{kind:?}: {}", help.out);
        assert!(wrong.err.contains(kind.as_str()), "{kind:?}: {}", wrong.err);
    }
}

#[tokio::test]
async fn an_error_is_json_when_json_was_asked_for() {
    let ran = bare(&["migrate", "status", "--json"]).await;

    let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(error["exit_code"], 2);
    assert!(error["error"].as_str().unwrap().contains("--database"));
    assert!(error["causes"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_database_that_is_away_is_a_failure_and_the_password_is_not_shown() {
    let url = "postgres://user:secret@127.0.0.1:1/bank";
    let ran = bare(&["migrate", "status", "--database", url]).await;

    assert_eq!(ran.code, Code::Failed, "{ran:?}");
    assert!(ran.err.contains("127.0.0.1:1/bank"), "{ran:?}");
    assert!(!ran.err.contains("secret"), "{ran:?}");
}
