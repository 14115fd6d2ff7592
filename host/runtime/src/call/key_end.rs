//! Decides about an idempotency key at the end of its call: the outcome is kept for it, the key is released, or its
//! outcome is unknown.

use cofferdam_audit::KeyEnd;
use cofferdam_core::error::Error;
use cofferdam_core::failure::{Failure, FailureCause, FailureClass};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The facts that decide about a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallEnd {
    pub(super) attempts: usize,
    /// True if each attempt has ended.
    pub(super) all_ended: bool,
    /// True if a request of the ended attempts may have left.
    pub(super) sent: bool,
    /// True if the guest returned while a request was pending that may have changed something.
    pub(super) left_unsafe: bool,
    /// True if the call may be repeated.
    pub(super) idempotent: bool,
    /// The time until which an outcome would be kept.
    pub(super) until: Timestamp,
}

impl CallEnd {
    /// Returns the state of the key after a call with this outcome.
    pub(super) fn key<A>(self, outcome: &Result<A, Error>) -> KeyEnd {
        match outcome {
            // No attempt was made under it.
            _ if self.attempts == 0 => KeyEnd::Free,
            // The result of a request that was aborted when the guest returned is unknown, whatever the guest
            // reports.
            Ok(_) if self.left_unsafe => KeyEnd::Unknown,
            Ok(_) => KeyEnd::Keeps(self.until),
            // A transient failure must not block the key. Release it if that cannot cause a second effect.
            Err(Error::Failure(failure)) if passes(failure) && (self.idempotent || !self.sent) => {
                KeyEnd::Free
            }
            // The host cut the call off while its requests were on the way. As with a cancellation, the outcome
            // does not show their effect.
            Err(Error::Failure(failure))
                if cut_off(failure) && matches!(self.key_without_outcome(), KeyEnd::Unknown) =>
            {
                KeyEnd::Unknown
            }
            Err(Error::Failure(_)) if self.left_unsafe => KeyEnd::Unknown,
            Err(Error::Failure(_)) => KeyEnd::Keeps(self.until),
            Err(Error::Host(_)) => self.key_without_outcome(),
        }
    }

    /// Returns the state of the key after a call without an outcome of its own: it was cancelled, or the host could
    /// not go on.
    pub(super) fn key_without_outcome(self) -> KeyEnd {
        // An attempt that never ended may have sent anything.
        match self.attempts == 0 || self.idempotent || (self.all_ended && !self.sent) {
            true => KeyEnd::Free,
            false => KeyEnd::Unknown,
        }
    }
}

/// Returns the key's state as the audit log has it.
pub(super) fn fact(key: KeyEnd) -> Value {
    match key {
        KeyEnd::Keeps(until) => json!({"state": "keeps", "until": until.to_string()}),
        KeyEnd::Free => json!({"state": "free", "until": null}),
        KeyEnd::Unknown => json!({"state": "unknown", "until": null}),
    }
}

/// True if the host ended the call before the connector had answered.
fn cut_off(failure: &Failure) -> bool {
    failure.class() == FailureClass::ResourceLimitExceeded && failure.code() != "payload"
}

/// True if another try may end otherwise. This includes a call that ran out of its own time, an open circuit, and a
/// missing grant or binding that the operator can add.
fn passes(failure: &Failure) -> bool {
    use FailureClass::{BindingFailed, BindingRequired, CapabilityDenied, HashMismatch, SignatureFailure};
    let for_the_operator = matches!(
        failure.class(),
        CapabilityDenied | BindingRequired | BindingFailed | HashMismatch | SignatureFailure
    );
    failure.retriable()
        || for_the_operator
        || matches!(failure.cause(), FailureCause::WallTime | FailureCause::CircuitOpen)
}
