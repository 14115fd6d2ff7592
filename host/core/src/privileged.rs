//! The rights of the host's own crates: to make and change failures, and to read secrets.
//!
//! The crate `cofferdam` does not re-export these traits: its embedders get failures that say what the host observed,
//! and cannot make any.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::failure::*;
use crate::secret::Secret;

/// Makes and changes failures.
pub trait MakeFailure: Sized {
    /// A binding that the call needs is not there, is not for this connector, or was refused by its issuer.
    fn binding(context: &Context, problem: &BindingProblem) -> Self;

    /// The vault could not be used when a request needed a credential, and others had been sent by then: no reason
    /// for a call not to have been taken up, since it was.
    fn vault_unavailable(context: &Context, trouble: &str) -> Self;

    /// The circuit is open. `anything_sent` is whether the attempt had sent a request elsewhere before.
    fn circuit_open(context: &Context, open: &CircuitOpen, anything_sent: bool) -> Self;

    /// The cause that opened the circuit, if the failure is an open circuit.
    fn circuit_cause(&self) -> Option<Cause>;

    /// Adds what only the operator's record may say. It is never serialised.
    fn with_operator_note(self, note: impl Into<String>) -> Self;

    /// Rewrites what only the operator's record may say: to take out what not even that may.
    fn with_notes_rewritten(self, rewrite: impl Fn(&str) -> String) -> Self;

    /// The request for which the call is neither repeated nor handed to a fallback, whatever else this failure says.
    fn unrepeatable(&self) -> Option<&Unrepeatable>;

    /// A request did not get an answer.
    fn network_error(context: &Context, fault: NetworkFault) -> Self;

    /// The upstream answered with an error status.
    fn external_api_error(context: &Context, fault: UpstreamFault) -> Self;

    /// The bytes on disk hash to `got`, and were verified as `expected`.
    fn hash_mismatch(context: &Context, connector: &str, expected: &str, got: &str) -> Self;

    /// The package's hash is `got`, and the caller pinned `expected`. The package was not changed.
    fn pin_mismatch(context: &Context, what: &str, expected: &str, got: &str) -> Self;

    /// The signature of `connector` does not hold, for the reason in `code`; `fix` names the next step.
    fn signature_failure(
        context: &Context,
        connector: &str,
        code: SignatureCode,
        reason: &str,
        fix: &str,
    ) -> Self;

    /// The call hit a limit.
    fn resource_limit_exceeded(context: &Context, hit: LimitHit) -> Self;

    /// All of it.
    fn whole(&self) -> WholeFailure<'_>;

    /// The failure that was sealed, as it was; none where a word in it is not one of this host's.
    fn restored(whole: WholeFailure<'_>) -> Option<Self>;

    /// Adds how often the call was retried, why not again, and how long the next wait would have been. Class,
    /// message and `retriable` stay what they were.
    fn with_retries(self, retried: u32, stopped: Option<RetryStopped>, retry_after: Option<Duration>)
    -> Self;

    /// Says whether any request of any attempt of the call may have left.
    fn with_request_sent(self, sent: bool) -> Self;

    /// Adds why it was not admitted again: class, code and message of what refused it.
    fn with_refusal(self, refusal: Map<String, Value>) -> Self;

    /// Adds the candidates of a chain that was tried to its end, each with what came of it.
    fn with_chain(self, chain: Vec<Map<String, Value>>) -> Self;

    /// A capability check refused the operation.
    fn capability_denied(context: &Context, denial: &Denial) -> Self;

    /// The connector's own code failed, or (for `Internal`) the host did while running it.
    fn connector_runtime_error(context: &Context, fault: RuntimeFault) -> Self;
}

impl MakeFailure for Failure {
    fn binding(context: &Context, problem: &BindingProblem) -> Self {
        Failure::binding(context, problem)
    }

    fn vault_unavailable(context: &Context, trouble: &str) -> Self {
        Failure::vault_unavailable(context, trouble)
    }

    fn circuit_open(context: &Context, open: &CircuitOpen, anything_sent: bool) -> Self {
        Failure::circuit_open(context, open, anything_sent)
    }

    fn circuit_cause(&self) -> Option<Cause> {
        Failure::circuit_cause(self)
    }

    fn with_operator_note(self, note: impl Into<String>) -> Self {
        Failure::with_operator_note(self, note)
    }

    fn with_notes_rewritten(self, rewrite: impl Fn(&str) -> String) -> Self {
        Failure::with_notes_rewritten(self, rewrite)
    }

    fn unrepeatable(&self) -> Option<&Unrepeatable> {
        Failure::unrepeatable(self)
    }

    fn network_error(context: &Context, fault: NetworkFault) -> Self {
        Failure::network_error(context, fault)
    }

    fn external_api_error(context: &Context, fault: UpstreamFault) -> Self {
        Failure::external_api_error(context, fault)
    }

    fn hash_mismatch(context: &Context, connector: &str, expected: &str, got: &str) -> Self {
        Failure::hash_mismatch(context, connector, expected, got)
    }

    fn pin_mismatch(context: &Context, what: &str, expected: &str, got: &str) -> Self {
        Failure::pin_mismatch(context, what, expected, got)
    }

    fn signature_failure(
        context: &Context,
        connector: &str,
        code: SignatureCode,
        reason: &str,
        fix: &str,
    ) -> Self {
        Failure::signature_failure(context, connector, code, reason, fix)
    }

    fn resource_limit_exceeded(context: &Context, hit: LimitHit) -> Self {
        Failure::resource_limit_exceeded(context, hit)
    }

    fn whole(&self) -> WholeFailure<'_> {
        Failure::whole(self)
    }

    fn restored(whole: WholeFailure<'_>) -> Option<Self> {
        Failure::restored(whole)
    }

    fn with_retries(
        self,
        retried: u32,
        stopped: Option<RetryStopped>,
        retry_after: Option<Duration>,
    ) -> Self {
        Failure::with_retries(self, retried, stopped, retry_after)
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

    fn capability_denied(context: &Context, denial: &Denial) -> Self {
        Failure::capability_denied(context, denial)
    }

    fn connector_runtime_error(context: &Context, fault: RuntimeFault) -> Self {
        Failure::connector_runtime_error(context, fault)
    }
}

/// Reads secrets.
pub trait ExposeSecret {
    /// The text of the secret.
    fn expose(&self) -> &str;
}

impl ExposeSecret for Secret {
    fn expose(&self) -> &str {
        Secret::expose(self)
    }
}
