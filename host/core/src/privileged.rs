//! The privileges of the host's own crates: to create and change failures, and to read secrets.
//!
//! The crate `cofferdam` does not re-export these traits: its embedders get failures that state the host's
//! observations, and cannot create any.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::failure::*;
use crate::secret::Secret;

/// Creates and changes failures.
pub trait MakeFailure: Sized {
    /// A binding that the call needs does not exist, does not allow this connector, or was rejected by its
    /// issuer.
    fn binding(context: &FailureContext, problem: &BindingProblem) -> Self;

    /// The vault could not be used when a request needed a credential. Other requests had been sent by then,
    /// so the call counts as started.
    fn vault_unavailable(context: &FailureContext, trouble: &str) -> Self;

    /// The circuit is open. `anything_sent` is whether the attempt had sent a request elsewhere before.
    fn circuit_open(context: &FailureContext, open: &CircuitOpen, anything_sent: bool) -> Self;

    /// Returns the cause that opened the circuit, if the failure is an open circuit.
    fn circuit_cause(&self) -> Option<FailureCause>;

    /// Adds a note that only the operator's audit log may contain. It is never serialized.
    fn with_operator_note(self, note: impl Into<String>) -> Self;

    /// Rewrites the operator notes, to remove text that not even the audit log may contain.
    fn with_notes_rewritten(self, rewrite: impl Fn(&str) -> String) -> Self;

    /// Returns the request because of which the call is neither retried nor handed to a fallback, whatever
    /// else this failure states.
    fn unrepeatable(&self) -> Option<&UnrepeatableRequest>;

    /// A request did not get a response.
    fn network_error(context: &FailureContext, fault: NetworkFault) -> Self;

    /// The upstream responded with an error status.
    fn external_api_error(context: &FailureContext, fault: UpstreamFault) -> Self;

    /// The bytes on disk have the hash `got`, and were verified as `expected`.
    fn hash_mismatch(context: &FailureContext, connector: &str, expected: &str, got: &str) -> Self;

    /// The package's hash is `got`, and the caller pinned `expected`. The package was not changed.
    fn pin_mismatch(context: &FailureContext, what: &str, expected: &str, got: &str) -> Self;

    /// The signature of `connector` is invalid, for the reason in `code`; `fix` names the next step.
    fn signature_failure(
        context: &FailureContext,
        connector: &str,
        code: SignatureCode,
        reason: &str,
        fix: &str,
    ) -> Self;

    /// The call hit a limit.
    fn resource_limit_exceeded(context: &FailureContext, hit: LimitHit) -> Self;

    /// Returns the complete content, to be sealed.
    fn snapshot(&self) -> FailureSnapshot<'_>;

    /// Restores a sealed failure; returns `None` if a word in it is unknown to this host.
    fn from_snapshot(whole: FailureSnapshot<'_>) -> Option<Self>;

    /// Adds the number of retries, the reason why there was no further one, and the length of the next wait.
    /// Class, message and `retriable` do not change.
    fn with_retries(self, retried: u32, stopped: Option<RetryStopped>, retry_after: Option<Duration>)
    -> Self;

    /// Makes the failure one that is not retriable: the call may have had its effect under a key that no other call
    /// has. `key` is that key, if the same call may be made again under it.
    fn with_minted_key(self, key: Option<&str>) -> Self;

    /// Says that the failure stands under the caller's key: no later call under it is sent.
    fn with_kept_key(self) -> Self;

    /// Records whether any request of any attempt of the call may have left.
    fn with_request_sent(self, sent: bool) -> Self;

    /// Adds the reason why it was not admitted again: class, code and message of the rejection.
    fn with_refusal(self, refusal: Map<String, Value>) -> Self;

    /// Adds the candidates of a chain that was tried to its end, each with its outcome.
    fn with_chain(self, chain: Vec<Map<String, Value>>) -> Self;

    /// A capability check denied the operation.
    fn capability_denied(context: &FailureContext, denial: &Denial) -> Self;

    /// The connector's own code failed, or (for `Internal`) the host did while running it.
    fn connector_runtime_error(context: &FailureContext, fault: RuntimeFault) -> Self;
}

impl MakeFailure for Failure {
    fn binding(context: &FailureContext, problem: &BindingProblem) -> Self {
        Failure::binding(context, problem)
    }

    fn vault_unavailable(context: &FailureContext, trouble: &str) -> Self {
        Failure::vault_unavailable(context, trouble)
    }

    fn circuit_open(context: &FailureContext, open: &CircuitOpen, anything_sent: bool) -> Self {
        Failure::circuit_open(context, open, anything_sent)
    }

    fn circuit_cause(&self) -> Option<FailureCause> {
        Failure::circuit_cause(self)
    }

    fn with_operator_note(self, note: impl Into<String>) -> Self {
        Failure::with_operator_note(self, note)
    }

    fn with_notes_rewritten(self, rewrite: impl Fn(&str) -> String) -> Self {
        Failure::with_notes_rewritten(self, rewrite)
    }

    fn unrepeatable(&self) -> Option<&UnrepeatableRequest> {
        Failure::unrepeatable(self)
    }

    fn network_error(context: &FailureContext, fault: NetworkFault) -> Self {
        Failure::network_error(context, fault)
    }

    fn external_api_error(context: &FailureContext, fault: UpstreamFault) -> Self {
        Failure::external_api_error(context, fault)
    }

    fn hash_mismatch(context: &FailureContext, connector: &str, expected: &str, got: &str) -> Self {
        Failure::hash_mismatch(context, connector, expected, got)
    }

    fn pin_mismatch(context: &FailureContext, what: &str, expected: &str, got: &str) -> Self {
        Failure::pin_mismatch(context, what, expected, got)
    }

    fn signature_failure(
        context: &FailureContext,
        connector: &str,
        code: SignatureCode,
        reason: &str,
        fix: &str,
    ) -> Self {
        Failure::signature_failure(context, connector, code, reason, fix)
    }

    fn resource_limit_exceeded(context: &FailureContext, hit: LimitHit) -> Self {
        Failure::resource_limit_exceeded(context, hit)
    }

    fn snapshot(&self) -> FailureSnapshot<'_> {
        Failure::snapshot(self)
    }

    fn from_snapshot(whole: FailureSnapshot<'_>) -> Option<Self> {
        Failure::from_snapshot(whole)
    }

    fn with_retries(
        self,
        retried: u32,
        stopped: Option<RetryStopped>,
        retry_after: Option<Duration>,
    ) -> Self {
        Failure::with_retries(self, retried, stopped, retry_after)
    }

    fn with_minted_key(self, key: Option<&str>) -> Self {
        Failure::with_minted_key(self, key)
    }

    fn with_kept_key(self) -> Self {
        Failure::with_kept_key(self)
    }

    fn with_request_sent(self, sent: bool) -> Self {
        Failure::with_request_sent(self, sent)
    }

    fn with_refusal(self, refusal: Map<String, Value>) -> Self {
        Failure::with_refusal(self, refusal)
    }

    fn with_chain(self, chain: Vec<Map<String, Value>>) -> Self {
        Failure::with_chain(self, chain)
    }

    fn capability_denied(context: &FailureContext, denial: &Denial) -> Self {
        Failure::capability_denied(context, denial)
    }

    fn connector_runtime_error(context: &FailureContext, fault: RuntimeFault) -> Self {
        Failure::connector_runtime_error(context, fault)
    }
}

/// Reads secrets.
pub trait ExposeSecret {
    /// Returns the text of the secret.
    fn expose(&self) -> &str;
}

impl ExposeSecret for Secret {
    fn expose(&self) -> &str {
        Secret::expose(self)
    }
}
