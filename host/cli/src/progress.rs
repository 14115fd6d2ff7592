//! Says that something takes its time: a spinner or a bar on a terminal, plain lines elsewhere.

use std::future::Future;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::failure::sanitize_line;
use indicatif::{ProgressBar, ProgressStyle};

use super::ui::Ui;

/// The time before a spinner is shown.
const SPINNER_AFTER: Duration = Duration::from_millis(150);

/// The time before a progress line is printed.
const LINE_AFTER: Duration = Duration::from_secs(2);

/// Between two lines about the same.
const LINES_APART: Duration = Duration::from_secs(5);

/// Waits for `work`, and says `what` is being done if that takes long.
pub(super) async fn during<T>(ui: &Ui, what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let patience = if ui.is_animated() { SPINNER_AFTER } else { LINE_AFTER };
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(patience) => {}
    }
    let _spinner = if ui.is_animated() {
        Spinner::start(what)
    } else {
        ui.note(&format!("{what} ..."));
        None
    };
    work.await
}

/// The spinner on the terminal, if there is one; locked during a prompt.
static TERMINAL: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Asks something at the terminal, without a spinner that would write over the question.
pub(super) fn without_spinner<T>(ask: impl FnOnce() -> T) -> T {
    let terminal = TERMINAL.lock().unwrap_or_else(PoisonError::into_inner);
    match &*terminal {
        Some(spinner) => spinner.suspend(ask),
        None => ask(),
    }
}

/// A spinner that is gone when it is dropped, also by a cancellation.
struct Spinner(ProgressBar);

impl Spinner {
    /// Returns none during a prompt, because this thread must not wait for the answer.
    fn start(what: &str) -> Option<Self> {
        let mut terminal = TERMINAL.try_lock().ok()?;
        let bar = ProgressBar::new_spinner().with_message(sanitize_line(what, 200));
        // The template is ours; a wrong one would leave the default.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        *terminal = Some(bar.clone());
        Some(Self(bar))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // Locked, the question is still open: then the line is not this one's to clear.
        if let Ok(mut terminal) = TERMINAL.try_lock() {
            *terminal = None;
            self.0.finish_and_clear();
        }
    }
}

/// Says how much of something long is done: a bar on a terminal, a line now and then elsewhere.
pub(super) struct ProgressCounter(ProgressDisplay);

enum ProgressDisplay {
    Bar(ProgressBar),
    Lines { ui: Ui, what: String, next: Instant },
}

impl ProgressCounter {
    /// Begins to count `what`.
    pub(super) fn start(ui: &Ui, what: &str) -> Self {
        if !ui.is_animated() {
            let next = Instant::now() + LINE_AFTER;
            return Self(ProgressDisplay::Lines { ui: ui.clone(), what: what.to_owned(), next });
        }
        let bar = ProgressBar::no_length().with_message(sanitize_line(what, 200));
        // The template is ours; a wrong one would leave the default.
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {human_pos} of {human_len} {msg} ({elapsed})")
        {
            bar.set_style(style);
        }
        Self(ProgressDisplay::Bar(bar))
    }

    /// So many of so many.
    pub(super) fn update(&mut self, done: u64, of: u64) {
        match &mut self.0 {
            ProgressDisplay::Bar(bar) => {
                bar.set_length(of);
                bar.set_position(done);
            }
            ProgressDisplay::Lines { ui, what, next } => {
                let now = Instant::now();
                if now >= *next {
                    *next = now + LINES_APART;
                    ui.note(&progress_line(done, of, what));
                }
            }
        }
    }
}

/// Returns the progress line. If the total is not known, `of` equals `done`.
fn progress_line(done: u64, of: u64, what: &str) -> String {
    match done < of {
        true => format!("{done} of {of} {what} ..."),
        false => format!("{done} {what} ..."),
    }
}

impl Drop for ProgressCounter {
    fn drop(&mut self) {
        if let ProgressDisplay::Bar(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
