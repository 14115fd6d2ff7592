//! The progress of a call or an action for its client: text that names the step, and a number that only
//! grows.

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::sanitize_line;

/// The longest message, in characters.
const NOTE_CHARS: usize = 300;

/// The code of a call that waits for a person.
const WAITS: &str = HostErrorKind::ApprovalRequired.code();

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProgressEvent {
    /// The target is an action. The client gets no message for it, only for the following events.
    Action,
    /// A step of the action begins: its number, the number of steps, its call, and its description.
    Begins { number: u32, of: u32, call: String, name: String, what: String },
    /// An event within a call.
    Within(String),
    /// The end of the call or action: the verb, and the class or the code.
    Ended(&'static str, Option<String>),
}

/// An update for the client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProgressUpdate {
    pub(super) text: String,
    /// The progress: of an action in steps, of a call in messages.
    pub(super) at: f64,
    /// The total; none if it is unknown.
    pub(super) of: Option<f64>,
}

/// The progress of one call or action.
#[derive(Debug, Default)]
pub(super) struct ProgressTracker {
    is_action: bool,
    /// True until the call waits for a person who is asked, and goes on afterwards.
    may_wait: bool,
    /// The running step of an action.
    step: Option<RunningStep>,
    /// The messages since the step began, or since the start.
    notes: u32,
}

#[derive(Debug)]
struct RunningStep {
    number: u32,
    of: u32,
    call: String,
    name: String,
}

impl ProgressTracker {
    /// Creates the tracker of a call. If it `may_wait` for a person, that is not its end.
    pub(super) fn new(may_wait: bool) -> Self {
        Self { may_wait, ..Self::default() }
    }

    /// Returns the update for an event of the call `audit_id`; none if there is nothing new.
    pub(super) fn update(&mut self, audit_id: &str, says: ProgressEvent) -> Option<ProgressUpdate> {
        let text = match says {
            ProgressEvent::Action => {
                self.is_action = true;
                return None;
            }
            ProgressEvent::Begins { number, of, call, name, what } => {
                self.step = Some(RunningStep { number, of, call, name });
                self.notes = 0;
                what
            }
            ProgressEvent::Ended(_, Some(why)) if self.may_wait && why == WAITS => {
                self.may_wait = false;
                return None;
            }
            // The end of a step shows in the next update.
            ProgressEvent::Ended(..) if self.step.as_ref().is_some_and(|step| step.call == audit_id) => {
                return None;
            }
            ProgressEvent::Ended(how, why) => {
                let what = if self.is_action { "action" } else { "call" };
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let step = self.step.take();
                self.notes += 1;
                let (at, of) = match (&step, how) {
                    (Some(step), "succeeded") => (f64::from(step.of), Some(f64::from(step.of))),
                    (step, _) => self.position(step.as_ref()),
                };
                return Some(ProgressUpdate {
                    text: sanitize_line(&format!("The {what} {how}{why}."), NOTE_CHARS),
                    at,
                    of,
                });
            }
            ProgressEvent::Within(text) => {
                self.notes += 1;
                text
            }
        };
        let (at, of) = self.position(self.step.as_ref());
        let text = match &self.step {
            Some(step) => format!("Step {} of {}, {}: {text}", step.number, step.of, step.name),
            None => text,
        };
        Some(ProgressUpdate { text: sanitize_line(&text, NOTE_CHARS), at, of })
    }

    /// Returns the progress. Within a step it approaches the step's end without reaching it.
    fn position(&self, step: Option<&RunningStep>) -> (f64, Option<f64>) {
        let notes = f64::from(self.notes);
        match step {
            Some(step) => {
                (f64::from(step.number.saturating_sub(1)) + notes / (notes + 1.0), Some(f64::from(step.of)))
            }
            None => (notes, None),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{ProgressEvent, ProgressTracker};

    fn begins(number: u32, call: &str, name: &str) -> ProgressEvent {
        ProgressEvent::Begins {
            number,
            of: 2,
            call: call.into(),
            name: name.into(),
            what: "greet of hello.".into(),
        }
    }

    #[test]
    fn action_progress_advances_step_by_step() {
        let mut tracker = ProgressTracker::default();
        let within = || ProgressEvent::Within("Attempt 1.".into());
        let notes = [
            ("action", ProgressEvent::Action),
            ("a", begins(1, "a", "greeting")),
            ("a", within()),
            ("a", within()),
            ("a", ProgressEvent::Ended("succeeded", None)),
            ("b", begins(2, "b", "share")),
            ("b", within()),
            ("b", ProgressEvent::Ended("succeeded", None)),
            ("action", ProgressEvent::Ended("succeeded", None)),
        ];
        let told: Vec<_> = notes.into_iter().filter_map(|(id, says)| tracker.update(id, says)).collect();
        let texts: Vec<_> = told.iter().map(|told| told.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "Step 1 of 2, greeting: greet of hello.",
                "Step 1 of 2, greeting: Attempt 1.",
                "Step 1 of 2, greeting: Attempt 1.",
                "Step 2 of 2, share: greet of hello.",
                "Step 2 of 2, share: Attempt 1.",
                "The action succeeded.",
            ]
        );
        assert!(
            told.is_sorted_by(|one, next| one.at < next.at) && told.iter().all(|told| told.of == Some(2.0))
        );
        assert!(told.last().unwrap().at == 2.0, "{told:?}");
    }

    #[test]
    fn unfinished_work_is_not_reported_as_done() {
        let mut tracker = ProgressTracker::default();
        assert!(tracker.update("action", ProgressEvent::Action).is_none());
        tracker.update("a", begins(1, "a", "greeting")).unwrap();
        let end =
            tracker.update("action", ProgressEvent::Ended("failed", Some("network_error".into()))).unwrap();
        assert_eq!(end.text, "The action failed: network_error.");
        assert!(end.at > 0.0 && end.at < 1.0 && end.of == Some(2.0), "{end:?}");
        let mut call = ProgressTracker::default();
        let end = call.update("a", ProgressEvent::Ended("was refused", Some("busy".into()))).unwrap();
        assert_eq!((end.text.as_str(), end.at, end.of), ("The call was refused: busy.", 1.0, None));
    }

    #[test]
    fn a_wait_for_a_person_is_not_an_end() {
        let waits = || ProgressEvent::Ended("was refused", Some("approval_required".into()));
        let mut tracker = ProgressTracker::new(true);
        assert!(tracker.update("action", ProgressEvent::Action).is_none());
        assert_eq!(tracker.update("action", waits()), None);
        let begins = tracker.update("a", begins(1, "a", "greeting")).unwrap();
        assert_eq!((begins.at, begins.of), (0.0, Some(2.0)));
        assert!(tracker.update("again", waits()).is_some(), "it waits once");
        assert!(ProgressTracker::default().update("a", waits()).is_some());
    }
}
