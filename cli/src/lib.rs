//! The command line of oneffect, as a library: [`run`] does what the binary `oneffect` does, on a
//! [`Console`] of the caller's.
//!
//! `oneffect --help` says what there is; the crate's README has the commands by what they are for.

mod code;
mod command;
mod console;
mod database;
mod options;
mod text;

use std::ffi::OsString;
use std::io::{self, ErrorKind};

use clap::Parser as _;
use serde_json::json;

pub use code::Code;
pub use console::Console;

use crate::code::{NotFound, Unusable};
use crate::options::Options;

/// Runs one command line, whose first argument is the program's name, and says how it ended. Errors
/// go to the console.
///
/// # Cancel safety
/// What a command had begun in a database is rolled back.
pub async fn run<I>(args: I, console: &mut Console) -> Code
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) => return explain(&error, console),
    };
    let ended = Box::pin(command::run(&options, console)).await;
    let ended = ended.and_then(|code| console.flush().map(|()| code).map_err(Into::into));
    ended.unwrap_or_else(|error| report(&error, options.common.json, console))
}

/// Help, the version, or what is wrong with the command line.
fn explain(error: &clap::Error, console: &mut Console) -> Code {
    let text = error.render();
    let is_asked_for = !error.use_stderr();
    let text = if console.has_colours(is_asked_for) {
        text.ansi().to_string()
    } else {
        text.to_string()
    };
    let written = if is_asked_for {
        console.print(&text)
    } else {
        console.note(&text)
    };
    match (written, is_asked_for) {
        (Ok(()), true) => Code::Fine,
        (Ok(()), false) => Code::Usage,
        (Err(error), _) => report(&error.into(), false, console),
    }
}

fn report(error: &anyhow::Error, as_json: bool, console: &mut Console) -> Code {
    let is_pipe = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    if error.downcast_ref().is_some_and(is_pipe) {
        // Whoever read has seen enough: `oneffect inbox | head`.
        return Code::Fine;
    }
    let code = if error.is::<Unusable>() {
        Code::Usage
    } else if error.is::<NotFound>() {
        Code::NotFound
    } else {
        Code::Failed
    };
    let causes: Vec<_> = error.chain().skip(1).map(ToString::to_string).collect();
    let text = if as_json {
        let error = error.to_string();
        let report = json!({ "error": error, "causes": causes, "exit_code": code as u8 });
        format!("{report}\n")
    } else {
        let mut lines = vec![format!(
            "{}: {}\n",
            console.alarm("error"),
            text::plain(&error.to_string())
        )];
        lines.extend(
            causes
                .iter()
                .map(|cause| format!("  because: {}\n", text::plain(cause))),
        );
        lines.concat()
    };
    // Nobody is left to tell when that fails.
    let _ = console.note(&text);
    code
}
