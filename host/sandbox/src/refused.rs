//! Components that could not be compiled, remembered for a while: calling one again and again must not
//! cost a compile each time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};

/// How many are remembered; the oldest is forgotten first.
const MANY: usize = 64;
/// How long; not for ever, since the operator may raise the bounds.
const LONG: Duration = Duration::from_secs(600);

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Refused {
    known: Mutex<VecDeque<Known>>,
}

#[derive(Debug)]
struct Known {
    component: Digest,
    error: HostError,
    at: Instant,
}

impl Refused {
    /// The error of a compile that failed, where it failed lately.
    pub(super) fn get(&self, component: &Digest, now: Instant) -> Option<HostError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|it| now.saturating_duration_since(it.at) < LONG);
        known.iter().find(|it| it.component == *component).map(|it| again(&it.error))
    }

    /// Remembers `error`, where the component is at fault and not the host.
    pub(super) fn put(&self, component: &Digest, error: &HostError, at: Instant) {
        if !matches!(error.kind(), HostErrorKind::CompileRefused | HostErrorKind::Validation) {
            return;
        }
        // What a loaded machine can bring about is no property of the component.
        let bound = error.details().get("bound").and_then(|bound| bound.as_str());
        if matches!(bound, Some("wall_time" | "machine")) {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|it| it.component != *component);
        if known.len() >= MANY {
            known.pop_front();
        }
        known.push_back(Known { component: *component, error: again(error), at });
    }
}

/// The same error for another request.
fn again(error: &HostError) -> HostError {
    let mut copy = HostError::new(error.kind(), error.message());
    for (key, value) in error.details() {
        copy = copy.detail(key, value.clone());
    }
    match error.hint_text() {
        Some(hint) => copy.hint(hint),
        None => copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> HostError {
        HostError::new(HostErrorKind::CompileRefused, "Too much.").hint("Less.").detail("limit", "compile")
    }

    #[test]
    fn a_refusal_is_the_same_for_a_while_and_of_another_request() {
        let (refused, now, digest) = (Refused::default(), Instant::now(), Digest::of(b"bomb"));
        refused.put(&digest, &refusal(), now);
        let first = refused.get(&digest, now);
        let again = refused.get(&digest, now + LONG / 2);
        let (Some(first), Some(again)) = (first, again) else { unreachable!("it was put") };
        assert_eq!(
            (again.message(), again.hint_text(), again.details()),
            ("Too much.", Some("Less."), first.details())
        );
        assert_ne!(first.request_id(), again.request_id());
        assert!(refused.get(&Digest::of(b"other"), now).is_none());
        assert!(refused.get(&digest, now + LONG).is_none());
    }

    #[test]
    fn a_fault_of_the_host_is_not_remembered_and_memory_is_bounded() {
        let (refused, now) = (Refused::default(), Instant::now());
        let fault = HostError::new(HostErrorKind::Configuration, "No worker.");
        refused.put(&Digest::of(b"0"), &fault, now);
        assert!(refused.get(&Digest::of(b"0"), now).is_none());
        for number in 0..=MANY {
            refused.put(&Digest::of(&number.to_le_bytes()), &refusal(), now);
        }
        assert!(refused.get(&Digest::of(&0usize.to_le_bytes()), now).is_none());
        assert!(refused.get(&Digest::of(&MANY.to_le_bytes()), now).is_some());
    }
}
