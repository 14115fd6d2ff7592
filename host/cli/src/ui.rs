//! Printing: data on standard output, the rest on standard error.

use std::io::{self, IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::printable_json;
use serde::Serialize;

use super::args::{GlobalArgs, OutputFormat};
use super::layout::{Page, printable_line};
use super::report::CommandError;

/// Longest line on standard error, in characters.
const LINE_CHARS: usize = 8_000;

/// The two streams, as the user asked for them.
#[derive(Debug, Clone)]
pub(super) struct Ui {
    format: OutputFormat,
    quiet: bool,
    verbose: u8,
}

impl Ui {
    pub(super) fn new(globals: &GlobalArgs) -> Self {
        Self { format: globals.format, quiet: globals.quiet, verbose: globals.verbose }
    }

    /// Prints results and errors alone.
    pub(super) fn silent() -> Self {
        Self { format: OutputFormat::Human, quiet: true, verbose: 0 }
    }

    /// Returns true if results are JSON.
    pub(super) fn json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Returns true if causes are shown.
    pub(super) fn verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Returns whether progress and notes are printed: not with `--quiet`, and not with JSON, where standard
    /// error is read by a program.
    pub(super) fn shows_notes(&self) -> bool {
        !self.quiet && !self.json()
    }

    /// Returns whether a line of standard error can be redrawn.
    pub(super) fn is_animated(&self) -> bool {
        self.shows_notes() && self.verbose == 0 && io::stderr().is_terminal()
    }

    /// Prints the result of a command: `data` as one line of JSON, or `page` for people.
    pub(super) fn result(
        &self,
        data: &impl Serialize,
        page: impl FnOnce(&mut Page),
    ) -> Result<(), CommandError> {
        if self.json() {
            return self.line_of_json(data);
        }
        let mut text = Page::default();
        page(&mut text);
        print(&text.into_text())
    }

    /// Prints `data` as one line of JSON, whatever the format.
    pub(super) fn line_of_json(&self, data: &impl Serialize) -> Result<(), CommandError> {
        let text = serde_json::to_string(data).map_err(not_json)?;
        print(&(printable_json(&text) + "\n"))
    }

    /// Prints text that is one line of JSON, whatever the format.
    pub(super) fn text_of_json(&self, text: &str) -> Result<(), CommandError> {
        print(&(printable_json(text) + "\n"))
    }

    /// Prints a value: on one line, or indented for people.
    pub(super) fn value(&self, value: &serde_json::Value) -> Result<(), CommandError> {
        if self.json() {
            return self.line_of_json(value);
        }
        let text = serde_json::to_string_pretty(value).map_err(not_json)?;
        print(&(printable_json(&text) + "\n"))
    }

    /// Prints text that a program asked for (completions, manuals), as it is.
    pub(super) fn raw(&self, text: &[u8]) -> Result<(), CommandError> {
        let mut out = io::stdout().lock();
        out.write_all(text).and_then(|()| out.flush()).map_err(not_written)
    }

    /// Tells the person at the terminal what is going on.
    pub(super) fn note(&self, text: &str) {
        if self.shows_notes() {
            err_line("", Style::new(), text);
        }
    }

    /// Shows a page to the person at the terminal, on standard error.
    pub(super) fn note_page(&self, page: impl FnOnce(&mut Page)) {
        if self.shows_notes() {
            let mut text = Page::default();
            page(&mut text);
            // A closed standard error is ignored, as by `note`.
            drop(anstream::stderr().lock().write_all(text.into_text().as_bytes()));
        }
    }

    /// Tells the person at the terminal what to look at.
    pub(super) fn warn(&self, text: &str) {
        if self.shows_notes() {
            err_line("warning: ", AnsiColor::Yellow.on_default().bold(), text);
        }
    }
}

/// Writes a line with a label to standard error. Ignores a closed standard error.
pub(super) fn err_line(label: &str, style: Style, text: &str) {
    let mut err = anstream::stderr().lock();
    let text = printable_line(text, LINE_CHARS);
    drop(writeln!(err, "{style}{label}{style:#}{text}"));
}

fn print(text: &str) -> Result<(), CommandError> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(not_written)
}

fn not_written(error: io::Error) -> CommandError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return CommandError::PipeClosed;
    }
    let message = format!("Standard output cannot be written: {}.", super::files::reason(&error));
    HostError::new(HostErrorKind::OutputUnwritable, message).with_source(error).into()
}

fn not_json(error: serde_json::Error) -> CommandError {
    HostError::new(HostErrorKind::Internal, "The result cannot be written as JSON.").with_source(error).into()
}
