//! What a command prints on, and whom it can ask.

use std::fmt::{self, Display};
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write, stderr, stdin, stdout};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::code::Unusable;

/// Where a command prints, whom it asks, and the environment that it reads.
pub struct Console {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Who answers questions; `None` when there is no terminal.
    answers: Option<Box<dyn BufRead + Send>>,
    /// Whether what is printed, and what is noted, has colours.
    colours: (bool, bool),
    progress: bool,
    variable: fn(&str) -> Option<String>,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("colours", &self.colours)
            .finish_non_exhaustive()
    }
}

impl Console {
    /// The process's own: standard output and error, questions where both standard input and error
    /// are a terminal, colours on a terminal unless `NO_COLOR` is set.
    pub fn standard() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let colours = variable("NO_COLOR").is_none() && variable("TERM").as_deref() != Some("dumb");
        let is_seen = stderr().is_terminal();
        Self {
            out: Box::new(stdout()),
            err: Box::new(stderr()),
            answers: (is_seen && stdin().is_terminal())
                .then(|| Box::new(BufReader::new(stdin())) as Box<dyn BufRead + Send>),
            colours: (colours && stdout().is_terminal(), colours && is_seen),
            progress: is_seen,
            variable,
        }
    }

    /// One without colours, with nobody to ask and no environment.
    pub fn new(out: impl Write + Send + 'static, err: impl Write + Send + 'static) -> Self {
        Self {
            out: Box::new(out),
            err: Box::new(err),
            answers: None,
            colours: (false, false),
            progress: false,
            variable: |_| None,
        }
    }

    /// Questions are answered by the lines of `answers`.
    #[must_use]
    pub fn answered_by(mut self, answers: impl BufRead + Send + 'static) -> Self {
        self.answers = Some(Box::new(answers));
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)
    }

    /// What was asked for.
    pub(crate) fn print(&mut self, text: impl Display) -> io::Result<()> {
        write!(self.out, "{text}")
    }

    /// Bytes as they are.
    pub(crate) fn print_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// One object, as a line of JSON.
    pub(crate) fn print_json(&mut self, object: &impl Serialize) -> io::Result<()> {
        writeln!(self.out, "{}", serde_json::to_string(object)?)
    }

    /// What is said besides.
    pub(crate) fn note(&mut self, text: impl Display) -> io::Result<()> {
        write!(self.err, "{text}")
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(crate) fn has_colours(&self, printed: bool) -> bool {
        if printed {
            self.colours.0
        } else {
            self.colours.1
        }
    }

    /// Text that is printed, and stands out.
    pub(crate) fn bold(&self, text: impl Display) -> String {
        styled(self.colours.0, Style::new().bold(), text)
    }

    /// Text that is printed, and says that all is well.
    pub(crate) fn good(&self, text: impl Display) -> String {
        styled(self.colours.0, AnsiColor::Green.on_default(), text)
    }

    /// Text that is printed, and says that something is wrong.
    pub(crate) fn bad(&self, text: impl Display) -> String {
        styled(self.colours.0, AnsiColor::Red.on_default().bold(), text)
    }

    /// Text that is printed, and says that something is worth a look.
    pub(crate) fn warn(&self, text: impl Display) -> String {
        styled(self.colours.0, AnsiColor::Yellow.on_default(), text)
    }

    /// As [`Console::bad`], of text that is noted.
    pub(crate) fn alarm(&self, text: impl Display) -> String {
        styled(self.colours.1, AnsiColor::Red.on_default().bold(), text)
    }

    /// Goes on only when a person agrees, or has agreed in advance.
    pub(crate) fn confirm(&mut self, is_agreed: bool, what: &str) -> anyhow::Result<()> {
        if is_agreed {
            return Ok(());
        }
        if self.answers.is_none() {
            let refused = format!("{what} There is no terminal to ask on: say --yes to go on.");
            return Err(Unusable(refused).into());
        }
        self.note(format_args!("{what} Go on? [y/N] "))?;
        self.err.flush()?;
        let mut answer = String::new();
        if let Some(answers) = &mut self.answers {
            answers.read_line(&mut answer)?;
        }
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        Err(Unusable("not confirmed; nothing was changed".to_owned()).into())
    }

    /// Shows on a terminal how far something is, until it is dropped.
    pub(crate) fn counting(&self, what: &'static str, all: u64) -> Counting {
        if !self.progress {
            return Counting(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{bar:30} {pos} of {len} {msg} ({elapsed})");
        let bar = ProgressBar::new(all).with_message(what);
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(120));
        Counting(bar)
    }

    /// Shows on a terminal that work goes on, until it is dropped.
    pub(crate) fn working(&self, what: &'static str) -> Working {
        if !self.progress {
            return Working(ProgressBar::hidden());
        }
        let template = "{spinner} {msg} ({elapsed})";
        let style = ProgressStyle::with_template(template);
        let bar = ProgressBar::new_spinner().with_message(what);
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.enable_steady_tick(Duration::from_millis(120));
        Working(bar)
    }
}

/// Work whose parts are counted.
#[derive(Debug)]
pub(crate) struct Counting(ProgressBar);

impl Counting {
    /// So many are done.
    pub(crate) fn at(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Work that goes on.
#[derive(Debug)]
pub(crate) struct Working(ProgressBar);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn styled(colours: bool, style: Style, text: impl Display) -> String {
    if colours {
        format!("{style}{text}{style:#}")
    } else {
        text.to_string()
    }
}
