//! Asks at the terminal: reads a line, without showing it if it is secret, and leaves the terminal as it was, also after Ctrl-C.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal as _, Read, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, PoisonError};

use cofferdam_core::error::{HostError, HostErrorKind};
use rpassword::{ConfigBuilder, read_password_with_config};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};

use super::progress;
use super::ui::Ui;

/// The character that a terminal sends for Ctrl-C while it raises no signals.
const CTRL_C: u8 = 3;

/// The terminal and its mode before a prompt; empty while nothing is asked.
static BEFORE: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// Asks without showing the answer; none where there is no terminal, or it gives no answer.
pub(super) fn ask_hidden(question: &str) -> Option<String> {
    if !io::stdin().is_terminal() {
        return None;
    }
    let answer = progress::without_spinner(|| read_hidden(question));
    if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Interrupted) {
        // The terminal is restored: now Ctrl-C does what it does everywhere else. A signal that cannot be sent
        // leaves the command without an answer, which ends it too.
        kill_process(getpid(), Signal::INT).ok();
    }
    answer.ok()
}

/// Asks for a line, and again until `read` takes it; an empty answer is the default. None where there is nobody to ask:
/// without a terminal, or without notes.
///
/// # Errors
/// The terminal was closed.
pub(super) fn ask<T>(
    ui: &Ui,
    question: &str,
    default: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, HostError> {
    if !ui.shows_notes() || !is_at_terminal() {
        return Ok(None);
    }
    let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    loop {
        let Some(line) = answer(&format!("{question}{shown}: ")) else {
            return Err(HostError::new(HostErrorKind::Validation, "The question was not answered.")
                .with_hint("Answer it, or say it with an option; see --help."));
        };
        let answer = Some(line.trim()).filter(|line| !line.is_empty()).unwrap_or(default);
        match read(answer) {
            Ok(read) => return Ok(Some(read)),
            Err(reason) => ui.warn(&reason),
        }
    }
}

/// Asks a question whose answer is yes or no; `instead` says how to answer it without a terminal.
///
/// # Errors
/// Standard input or standard error is no terminal.
pub(super) fn confirm(question: &str, instead: &str) -> Result<bool, HostError> {
    if !is_at_terminal() {
        let message = "This needs a confirmation, and standard input or standard error is no terminal; nothing was \
                       changed.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(instead));
    }
    let answer = answer(question).unwrap_or_default();
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Returns true if a question is seen and can be answered: standard error may go to a file while standard input does
/// not.
fn is_at_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Shows a question and reads a line; none where the terminal was closed.
fn answer(question: &str) -> Option<String> {
    let shown = progress::without_spinner(|| {
        let mut err = anstream::stderr().lock();
        err.write_all(question.as_bytes()).and_then(|()| err.flush())
    });
    let mut line = String::new();
    (shown.is_ok() && matches!(io::stdin().read_line(&mut line), Ok(1..))).then_some(line)
}

/// Gives the terminal back the mode that it had before a prompt; does nothing where none is open.
pub(super) fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((terminal, mode)) = before {
        // Fails only where the terminal is gone.
        tcsetattr(&terminal, OptionalActions::Now, &mode).ok();
    }
}

fn read_hidden(question: &str) -> io::Result<String> {
    let mut terminal = terminal()?;
    let keys = TerminalKeys(terminal.try_clone()?);
    let restored_at_end = EchoGuard::start(&terminal)?;
    terminal.write_all(question.as_bytes())?;
    let answer = read_password_with_config(ConfigBuilder::new().input_reader(keys).output_discard().build());
    drop(restored_at_end);
    terminal.write_all(b"\n")?;
    answer
}

/// The controlling terminal; a confined process cannot open it, and asks on standard input, which is a terminal too.
fn terminal() -> io::Result<File> {
    let controlling = OpenOptions::new().read(true).write(true).open("/dev/tty");
    controlling.or_else(|_| io::stdin().as_fd().try_clone_to_owned().map(File::from))
}

/// Restores the terminal when it is dropped.
struct EchoGuard;

impl EchoGuard {
    /// Turns off echo, line editing (which cuts lines at 4,096 bytes) and the keys that raise signals: a signal
    /// would end the process before the mode is restored.
    fn start(terminal: &File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut mode = before.clone();
        mode.local_modes -= LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG;
        mode.special_codes[SpecialCodeIndex::VMIN] = 1;
        mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some((terminal.try_clone()?, before));
        let hidden = Self;
        tcsetattr(terminal, OptionalActions::Now, &mode)?;
        Ok(hidden)
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        restore();
    }
}

/// The typed characters; Ctrl-C ends it with [`ErrorKind::Interrupted`].
struct TerminalKeys(File);

impl Read for TerminalKeys {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = loop {
            match self.0.read(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        match bytes.iter().take(read).any(|byte| *byte == CTRL_C) {
            true => Err(ErrorKind::Interrupted.into()),
            false => Ok(read),
        }
    }
}
