//! How far a call or an action is, as its client reads it: in words that name the step, and as a number that only grows.

use cofferdam_core::failure::safe_line;

/// The longest note, in characters.
const NOTE_CHARS: usize = 300;

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Says {
    /// What is run is an action. Nobody is told: what follows is.
    Action,
    /// A step of the action begins: which, of how many, its call, and what it is.
    Begins { number: u32, of: u32, call: String, name: String, what: String },
    /// What happens within a call.
    Within(String),
    /// How the call, or the action, ended: the verb, and the class or the code.
    Ended(&'static str, Option<String>),
}

/// What a client is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    pub(super) text: String,
    /// How far it is: of an action in steps, of a call in notes.
    pub(super) at: f64,
    /// Of how many; none where that is not known.
    pub(super) of: Option<f64>,
}

/// The course of one call or action.
#[derive(Debug, Default)]
pub(super) struct Course {
    is_action: bool,
    /// The step of an action that runs.
    step: Option<Running>,
    /// The notes since it began, or since the beginning.
    notes: u32,
}

#[derive(Debug)]
struct Running {
    number: u32,
    of: u32,
    call: String,
    name: String,
}

impl Course {
    /// What is told of a note of the call `audit_id`; none where it is nothing new.
    pub(super) fn tells(&mut self, audit_id: &str, says: Says) -> Option<Told> {
        let text = match says {
            Says::Action => {
                self.is_action = true;
                return None;
            }
            Says::Begins { number, of, call, name, what } => {
                self.step = Some(Running { number, of, call, name });
                self.notes = 0;
                what
            }
            // The end of a step shows in what comes next.
            Says::Ended(..) if self.step.as_ref().is_some_and(|step| step.call == audit_id) => return None,
            Says::Ended(how, why) => {
                let what = if self.is_action { "action" } else { "call" };
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let step = self.step.take();
                self.notes += 1;
                let (at, of) = match (&step, how) {
                    (Some(step), "succeeded") => (f64::from(step.of), Some(f64::from(step.of))),
                    (step, _) => self.place(step.as_ref()),
                };
                return Some(Told {
                    text: safe_line(&format!("The {what} {how}{why}."), NOTE_CHARS),
                    at,
                    of,
                });
            }
            Says::Within(text) => {
                self.notes += 1;
                text
            }
        };
        let (at, of) = self.place(self.step.as_ref());
        let text = match &self.step {
            Some(step) => format!("Step {} of {}, {}: {text}", step.number, step.of, step.name),
            None => text,
        };
        Some(Told { text: safe_line(&text, NOTE_CHARS), at, of })
    }

    /// Within a step it comes closer to the step's end, and never there.
    fn place(&self, step: Option<&Running>) -> (f64, Option<f64>) {
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
    use super::{Course, Says};

    fn begins(number: u32, call: &str, name: &str) -> Says {
        Says::Begins { number, of: 2, call: call.into(), name: name.into(), what: "greet of hello.".into() }
    }

    #[test]
    fn an_action_is_told_step_by_step_and_never_goes_back() {
        let mut course = Course::default();
        let within = || Says::Within("Attempt 1.".into());
        let notes = [
            ("action", Says::Action),
            ("a", begins(1, "a", "greeting")),
            ("a", within()),
            ("a", within()),
            ("a", Says::Ended("succeeded", None)),
            ("b", begins(2, "b", "share")),
            ("b", within()),
            ("b", Says::Ended("succeeded", None)),
            ("action", Says::Ended("succeeded", None)),
        ];
        let told: Vec<_> = notes.into_iter().filter_map(|(id, says)| course.tells(id, says)).collect();
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
    fn what_is_not_done_is_not_told_as_done() {
        let mut course = Course::default();
        assert!(course.tells("action", Says::Action).is_none());
        course.tells("a", begins(1, "a", "greeting")).unwrap();
        let end = course.tells("action", Says::Ended("failed", Some("network_error".into()))).unwrap();
        assert_eq!(end.text, "The action failed: network_error.");
        assert!(end.at > 0.0 && end.at < 1.0 && end.of == Some(2.0), "{end:?}");
        let mut call = Course::default();
        let end = call.tells("a", Says::Ended("was refused", Some("busy".into()))).unwrap();
        assert_eq!((end.text.as_str(), end.at, end.of), ("The call was refused: busy.", 1.0, None));
    }
}
