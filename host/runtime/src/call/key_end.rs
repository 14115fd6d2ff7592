//! What becomes of an idempotency key at the end of its call: whether its outcome stands, it is free again, or nobody
//! knows what was done under it.

use cofferdam_audit::KeyEnd;
use cofferdam_core::error::Error;
use cofferdam_core::failure::{Cause, Failure, FailureClass};
use jiff::Timestamp;
use serde_json::{Value, json};

/// What was done under a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) attempts: usize,
    /// Whether each attempt came to an end.
    pub(super) all_ended: bool,
    /// Whether any request of those that did may have left.
    pub(super) sent: bool,
    /// Whether the guest returned while a request of it was under way that may have changed something.
    pub(super) left_unsafe: bool,
    /// Whether it may be done again.
    pub(super) idempotent: bool,
    /// Until when an outcome would stand.
    pub(super) until: Timestamp,
}

impl Done {
    /// What becomes of the key of a call with this outcome.
    pub(super) fn key<A>(self, outcome: &Result<A, Error>) -> KeyEnd {
        match outcome {
            // Nothing was done under it.
            _ if self.attempts == 0 => KeyEnd::Free,
            // What became of a request that was aborted as the guest returned is not known, whatever the guest says.
            Ok(_) if self.left_unsafe => KeyEnd::Unknown,
            Ok(_) => KeyEnd::Keeps(self.until),
            // A key is not frozen to what passes; and nothing is done twice for that.
            Err(Error::Failure(failure)) if passes(failure) && (self.idempotent || !self.sent) => {
                KeyEnd::Free
            }
            // It was cut off by the host while what it had sent was on its way: that is no outcome of what it did, no
            // more than where somebody cancelled it.
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

    /// The same for a call that has no outcome of its own: it was cancelled, or the host could not go on.
    pub(super) fn key_without_outcome(self) -> KeyEnd {
        // Of an attempt that never ended it is not known what it sent.
        match self.attempts == 0 || self.idempotent || (self.all_ended && !self.sent) {
            true => KeyEnd::Free,
            false => KeyEnd::Unknown,
        }
    }
}

/// What becomes of a key, as the record has it.
pub(super) fn fact(key: KeyEnd) -> Value {
    match key {
        KeyEnd::Keeps(until) => json!({"state": "keeps", "until": until.to_string()}),
        KeyEnd::Free => json!({"state": "free", "until": null}),
        KeyEnd::Unknown => json!({"state": "unknown", "until": null}),
    }
}

/// Whether the host ended the call before the connector had answered.
fn cut_off(failure: &Failure) -> bool {
    failure.class() == FailureClass::ResourceLimitExceeded && failure.code() != "payload"
}

/// Whether another try may end otherwise: also where the call's own time was over, or a circuit open, and where the
/// operator can allow, bind or mend what was missing.
fn passes(failure: &Failure) -> bool {
    use FailureClass::{BindingFailed, BindingRequired, CapabilityDenied, HashMismatch, SignatureFailure};
    let for_the_operator = matches!(
        failure.class(),
        CapabilityDenied | BindingRequired | BindingFailed | HashMismatch | SignatureFailure
    );
    failure.retriable() || for_the_operator || matches!(failure.cause(), Cause::WallTime | Cause::CircuitOpen)
}
