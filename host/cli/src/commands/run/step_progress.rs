//! A line for each step of an action as it begins and as it ends, on a terminal.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cofferdam_core::event::{Event, EventKind, Listener};

use crate::progress;
use crate::ui::Ui;

/// Says on standard error which step an action is at.
pub(super) struct StepProgress {
    ui: Ui,
    since: Mutex<Option<Instant>>,
}

impl StepProgress {
    pub(super) fn new(ui: Ui) -> Self {
        Self { ui, since: Mutex::new(None) }
    }
}

impl Listener for StepProgress {
    fn event(&self, event: &Event<'_>) {
        if !self.ui.is_animated() {
            return;
        }
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let line = match event.kind {
            EventKind::StepStarted { step, connector, op, number, of, .. } => {
                *since = Some(Instant::now());
                format!("step {number}/{of} {step}: {op} of {connector}")
            }
            EventKind::StepEnded { step, outcome, class, code, .. } => {
                let took = since.take().map(|since| format!(" after {:.1} s", since.elapsed().as_secs_f64()));
                let took = took.unwrap_or_default();
                match (class, code) {
                    _ if outcome == "value" => format!("step {step}: done{took}"),
                    (Some(class), _) => format!("step {step}: {class}{took}"),
                    (None, Some(code)) => format!("step {step}: {code}{took}"),
                    (None, None) => format!("step {step}: {outcome}{took}"),
                }
            }
            _ => return,
        };
        progress::without_spinner(|| self.ui.note(&line));
    }
}
