//! Who takes part.

use std::path::PathBuf;

/// A program beside this one, and how it is called.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) args: &'static [&'static str],
    pub(crate) pace: Pace,
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
    },
    Contender {
        name: BATCH_TWIN,
        program: "batch-twin",
        args: &[],
        pace: Pace::Fast,
    },
    Contender {
        name: "oneffect-plain",
        program: "oneffect-contender",
        args: &["--handler", "plain"],
        pace: Pace::Slow,
    },
    Contender {
        name: "oneffect-staged",
        program: "oneffect-contender",
        args: &["--handler", "staged"],
        pace: Pace::Fast,
    },
    // The batch handler stands here when it exists.
];

pub(crate) fn named(name: &str) -> Option<&'static Contender> {
    CONTENDERS.iter().find(|contender| contender.name == name)
}

/// Where a program of this crate lies: beside this one.
pub(crate) fn program(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name(name))
}
