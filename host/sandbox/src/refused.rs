//! Recent failures to compile a component: repeated calls of it must not cost a compile each time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};

/// The number of remembered failures; the oldest is dropped first.
const MANY: usize = 64;
/// The time for which a failure is remembered. It is bounded, since the operator may raise the bounds.
const LONG: Duration = Duration::from_secs(600);

/// The remembered failures.
#[derive(Debug, Default)]
pub(super) struct RefusedCompile {
    known: Mutex<VecDeque<KnownRefusal>>,
}

#[derive(Debug)]
struct KnownRefusal {
    component: Digest,
    error: HostError,
    at: Instant,
}

impl RefusedCompile {
    /// Returns the error of a recent failed compile.
    pub(super) fn get(&self, component: &Digest, now: Instant) -> Option<HostError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|it| now.saturating_duration_since(it.at) < LONG);
        known.iter().find(|it| it.component == *component).map(|it| again(&it.error))
    }

    /// Stores `error`, if the component is at fault and not the host.
    pub(super) fn put(&self, component: &Digest, error: &HostError, at: Instant) {
        if !matches!(error.kind(), HostErrorKind::CompileRefused | HostErrorKind::Validation) {
            return;
        }
        // A failure that a loaded machine can cause is no property of the component.
        let bound = error.details().get("bound").and_then(|bound| bound.as_str());
        if matches!(bound, Some("wall_time" | "machine")) {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|it| it.component != *component);
        if known.len() >= MANY {
            known.pop_front();
        }
        known.push_back(KnownRefusal { component: *component, error: again(error), at });
    }
}

/// Returns the same error for another request.
fn again(error: &HostError) -> HostError {
    let mut copy = HostError::new(error.kind(), error.message());
    for (key, value) in error.details() {
        copy = copy.detail(key, value.clone());
    }
    match error.hint() {
        Some(hint) => copy.with_hint(hint),
        None => copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> HostError {
        HostError::new(HostErrorKind::CompileRefused, "Too much.")
            .with_hint("Less.")
            .detail("limit", "compile")
    }

    #[test]
    fn a_refusal_is_the_same_for_a_while_and_of_another_request() {
        let (refused, now, digest) = (RefusedCompile::default(), Instant::now(), Digest::sha256(b"bomb"));
        refused.put(&digest, &refusal(), now);
        let first = refused.get(&digest, now);
        let again = refused.get(&digest, now + LONG / 2);
        let (Some(first), Some(again)) = (first, again) else { unreachable!("it was put") };
        assert_eq!(
            (again.message(), again.hint(), again.details()),
            ("Too much.", Some("Less."), first.details())
        );
        assert_ne!(first.request_id(), again.request_id());
        assert!(refused.get(&Digest::sha256(b"other"), now).is_none());
        assert!(refused.get(&digest, now + LONG).is_none());
    }

    #[test]
    fn a_fault_of_the_host_is_not_remembered_and_memory_is_bounded() {
        let (refused, now) = (RefusedCompile::default(), Instant::now());
        let fault = HostError::new(HostErrorKind::Configuration, "No worker.");
        refused.put(&Digest::sha256(b"0"), &fault, now);
        assert!(refused.get(&Digest::sha256(b"0"), now).is_none());
        for number in 0..=MANY {
            refused.put(&Digest::sha256(&number.to_le_bytes()), &refusal(), now);
        }
        assert!(refused.get(&Digest::sha256(&0usize.to_le_bytes()), now).is_none());
        assert!(refused.get(&Digest::sha256(&MANY.to_le_bytes()), now).is_some());
    }
}
