//! Who takes part.

use std::path::PathBuf;

/// A program beside this one, and how it is called.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) args: &'static [&'static str],
    pub(crate) pace: Pace,
    /// It takes part although nobody has named it.
    pub(crate) always: bool,
}

/// How many deliveries make a run of some seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// A statement or a transaction a message.
    Slow,
    /// A few statements a batch.
    Fast,
}

/// Ratios are to this one.
pub(crate) const NAIVE_TWIN: &str = "naive-twin";
/// And to this one.
pub(crate) const BATCH_TWIN: &str = "batch-twin";

pub(crate) const CONTENDERS: &[Contender] = &[
    Contender {
        name: NAIVE_TWIN,
        program: "naive-twin",
        args: &[],
        pace: Pace::Slow,
        always: true,
    },
    Contender {
        name: BATCH_TWIN,
        program: "batch-twin",
        args: &[],
        pace: Pace::Fast,
        always: true,
    },
    Contender {
        name: "oneffect-plain",
        program: "oneffect-contender",
        args: &["--handler", "plain"],
        pace: Pace::Slow,
        always: true,
    },
    Contender {
        name: "oneffect-staged",
        program: "oneffect-contender",
        args: &["--handler", "staged"],
        pace: Pace::Fast,
        always: true,
    },
    Contender {
        name: "oneffect-batch",
        program: "oneffect-contender",
        args: &["--handler", "batch"],
        pace: Pace::Fast,
        always: true,
    },
    Contender {
        name: "oneffect-by-key",
        program: "oneffect-contender",
        args: &["--handler", "staged", "--lanes", "key"],
        pace: Pace::Fast,
        always: true,
    },
    Contender {
        name: "oneffect-unordered",
        program: "oneffect-contender",
        args: &["--handler", "staged", "--lanes", "unordered"],
        pace: Pace::Fast,
        always: false,
    },
    Contender {
        name: "staged-fails-0.1",
        program: "oneffect-contender",
        args: &["--handler", "staged", "--fail", "0.001"],
        pace: Pace::Fast,
        always: false,
    },
    Contender {
        name: "by-key-fails-0.1",
        program: "oneffect-contender",
        args: &["--handler", "staged", "--lanes", "key", "--fail", "0.001"],
        pace: Pace::Fast,
        always: false,
    },
    Contender {
        name: "plain-fails-0.1",
        program: "oneffect-contender",
        args: &["--handler", "plain", "--fail", "0.001"],
        pace: Pace::Slow,
        always: false,
    },
    Contender {
        name: "staged-fails-1",
        program: "oneffect-contender",
        args: &["--handler", "staged", "--fail", "0.01"],
        pace: Pace::Fast,
        always: false,
    },
    Contender {
        name: "by-key-fails-1",
        program: "oneffect-contender",
        args: &["--handler", "staged", "--lanes", "key", "--fail", "0.01"],
        pace: Pace::Fast,
        always: false,
    },
    Contender {
        name: "plain-fails-1",
        program: "oneffect-contender",
        args: &["--handler", "plain", "--fail", "0.01"],
        pace: Pace::Slow,
        always: false,
    },
    Contender {
        name: "staged-fails-10",
        program: "oneffect-contender",
        args: &["--handler", "staged", "--fail", "0.1"],
        pace: Pace::Fast,
        always: false,
    },
    Contender {
        name: "by-key-fails-10",
        program: "oneffect-contender",
        args: &["--handler", "staged", "--lanes", "key", "--fail", "0.1"],
        pace: Pace::Fast,
        always: false,
    },
    Contender {
        name: "plain-fails-10",
        program: "oneffect-contender",
        args: &["--handler", "plain", "--fail", "0.1"],
        pace: Pace::Slow,
        always: false,
    },
];

pub(crate) fn named(name: &str) -> Option<&'static Contender> {
    CONTENDERS.iter().find(|contender| contender.name == name)
}

/// Where a program of this crate lies: beside this one.
pub(crate) fn program(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name(name))
}
