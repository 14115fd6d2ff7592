//! From the end of an attempt to the result for the caller: a value, or one failure of the taxonomy.
//!
//! The order is the contract: a gate's verdict outranks everything (a denied guest cannot return ok), then
//! the deadline, then the trap, then the guest's own report. The gate's observations outrank the guest's
//! report about the network.

use cofferdam_core::error::HostError;
use cofferdam_core::failure::{
    Denial, DenialCode, Failure, FailureContext, LimitHit, LimitKind, NetworkFault, RequestPhase,
    RuntimeFault, UpstreamFault, sanitize_line,
};
use cofferdam_core::limits;
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::secret::{Scanner, SecretMatch};
use cofferdam_egress::egress::remedy;
use serde_json::Value;

use super::hostcalls::attempt_log::{AttemptLog, Termination};
use super::memory::GrowthRefusal;
use super::traps::CallEnding;
use super::values::{DecodeError, DecodedResult, ResultFormat};

/// The longest guest text kept for the operator, in characters.
const DETAIL_CHARS: usize = 2_000;

/// Returns the failure for a gate's verdict, or the host's own error if that is the verdict.
pub(super) fn from_termination(
    context: &FailureContext,
    verdict: Termination,
    ledger: &AttemptLog,
) -> Result<Failure, HostError> {
    Ok(match verdict {
        Termination::Denied(denial) => Failure::capability_denied(context, &denial),
        Termination::Limit(hit) => Failure::resource_limit_exceeded(context, hit),
        Termination::Binding(problem) => Failure::binding(context, &problem),
        Termination::Circuit(open) => Failure::circuit_open(context, &open, ledger.anything_sent()),
        Termination::Host(trouble) if ledger.anything_sent() => {
            Failure::vault_unavailable(context, trouble.kind.code())
                .with_operator_note(format!("{} {}", trouble.message, trouble.hint))
        }
        Termination::Host(trouble) => {
            return Err(HostError::new(trouble.kind, trouble.message).with_hint(trouble.hint));
        }
    })
}

/// The failure for a guest that was ended by an error.
pub(super) fn from_call_ending(context: &FailureContext, ending: CallEnding) -> Failure {
    match ending {
        CallEnding::Limit(hit) => Failure::resource_limit_exceeded(context, hit),
        CallEnding::Fault(fault) => Failure::connector_runtime_error(context, fault),
    }
}

/// Returns the guest's value, or the failure that it reports. Neither passes with a secret in it: a guest
/// holds none, but a service may have given it one in a form that the gate's search does not know.
pub(super) fn from_result<A: ResultFormat>(
    context: &FailureContext,
    result: Result<DecodedResult<A>, DecodeError>,
    ledger: &AttemptLog,
    scanner: Option<&Scanner>,
) -> Result<A, Failure> {
    if let (Some(scanner), Ok(returned)) = (scanner, &result)
        && let Some((what, found)) = secret_in(scanner, returned)
    {
        let bindings = (!found.binding.is_empty()).then(|| found.binding.to_string()).into_iter().collect();
        let denial = Denial::for_secret(DenialCode::SecretReflected, what, bindings);
        return Err(Failure::capability_denied(context, &denial));
    }
    let over = |limit, configured: usize, used| {
        let hit = LimitHit::new(limit, configured as u64, used);
        Err(Failure::resource_limit_exceeded(context, hit))
    };
    match result {
        Ok(DecodedResult::Value(value)) => Ok(value),
        Ok(DecodedResult::Failure(failure)) => Err(guest_failure(context, &failure, ledger, scanner)),
        Err(DecodeError::TooLong(used)) => over(LimitKind::Payload, limits::PAYLOAD_BYTES, used),
        Err(DecodeError::TooLarge) => {
            over(LimitKind::HostTransfer, limits::RESULT_BYTES, limits::RESULT_BYTES as u64 + 1)
        }
        Err(DecodeError::NoRoom) => {
            let GrowthRefusal(hit) = ledger.memory().exhausted();
            Err(Failure::resource_limit_exceeded(context, hit))
        }
        Err(DecodeError::Malformed) => {
            let fault = RuntimeFault::OutputMalformed("a value of another type");
            Err(Failure::connector_runtime_error(context, fault))
        }
    }
}

/// Returns a secret in the part that callers would get, and its description. The detail of a failure is for
/// the operator, and only loses the secret itself.
fn secret_in<A: ResultFormat>(
    scanner: &Scanner,
    returned: &DecodedResult<A>,
) -> Option<(&'static str, SecretMatch)> {
    match returned {
        DecodedResult::Value(value) => value.find_secret(scanner).map(|found| ("result", found)),
        DecodedResult::Failure(failure) => {
            let records = failure.as_object()?.values().filter_map(Value::as_object);
            let mut shown = records.flatten().filter(|(name, _)| *name != "detail");
            shown.find_map(|(_, value)| scanner.find_in_json(value)).map(|found| ("failure", found))
        }
    }
}

/// Returns the failure that the guest reports, from the contract's variant as JSON.
fn guest_failure(
    context: &FailureContext,
    failure: &Value,
    ledger: &AttemptLog,
    scanner: Option<&Scanner>,
) -> Failure {
    let malformed =
        || Failure::connector_runtime_error(context, RuntimeFault::OutputMalformed("an unknown failure"));
    let case = failure.as_object().and_then(|cases| cases.iter().next());
    let Some((case, record)) = case else { return malformed() };
    let record = FailureFields(record);
    let failure = match case.as_str() {
        "upstream" => match record.number("status") {
            Some(status) => upstream_failure(context, status, record, ledger),
            None => return malformed(),
        },
        "network" => network_failure(context, record, ledger),
        "invalid_input" => {
            let fault = RuntimeFault::InputInvalid {
                field: record.text("field"),
                message: record.text("message").unwrap_or_default(),
            };
            Failure::connector_runtime_error(context, fault)
        }
        "failed" => {
            let fault = RuntimeFault::OperationFailed {
                code: record.text("code"),
                message: record.text("message").unwrap_or_default(),
                transient: record.0.get("transient") == Some(&Value::Bool(true)),
            };
            Failure::connector_runtime_error(context, fault)
        }
        _ => return malformed(),
    };
    match record.text("detail") {
        Some(detail) => {
            let clean = scanner.map(|scanner| scanner.redact(&detail, false).into_owned());
            let detail = clean.unwrap_or(detail);
            failure.with_operator_note(format!("connector: {}", sanitize_line(&detail, DETAIL_CHARS)))
        }
        None => failure,
    }
}

fn upstream_failure(
    context: &FailureContext,
    status: u16,
    record: FailureFields<'_>,
    ledger: &AttemptLog,
) -> Failure {
    let seen = ledger.request_log.answer(status);
    let fault = UpstreamFault {
        status,
        upstream_code: record.text("code"),
        observed: seen.is_some(),
        retry_after_ms: seen.as_ref().and_then(|seen| seen.retry_after_ms),
        bindings: seen.as_ref().map(|seen| seen.bindings.clone()).unwrap_or_default(),
        host: seen.map(|seen| seen.host),
    };
    Failure::external_api_error(context, fault)
}

fn network_failure(context: &FailureContext, record: FailureFields<'_>, ledger: &AttemptLog) -> Failure {
    let claimed = record.0.get("phase").and_then(Value::as_str);
    let claimed = PHASES.into_iter().find(|phase| Some(phase.name()) == claimed);
    let fault = match ledger.fault(claimed) {
        Some(seen) => NetworkFault {
            phase: Some(seen.phase),
            code: seen.code,
            host: Some(seen.host),
            request_sent: ledger.anything_sent(),
            observed: true,
        },
        None => NetworkFault {
            phase: None,
            code: "unobserved",
            host: None,
            request_sent: ledger.anything_sent(),
            observed: false,
        },
    };
    let remedy = remedy(fault.code);
    let failure = Failure::network_error(context, fault);
    match remedy {
        Some(remedy) => failure.with_operator_note(remedy),
        None => failure,
    }
}

const PHASES: [RequestPhase; 5] =
    [RequestPhase::Dns, RequestPhase::Connect, RequestPhase::Tls, RequestPhase::Send, RequestPhase::Response];

/// A record's fields by name; a missing field, or one of another type, reads as none.
#[derive(Clone, Copy)]
struct FailureFields<'r>(&'r Value);

impl FailureFields<'_> {
    fn text(self, name: &str) -> Option<String> {
        self.0.get(name)?.as_str().map(str::to_owned)
    }

    fn number(self, name: &str) -> Option<u16> {
        self.0.get(name)?.as_u64().and_then(|number| number.try_into().ok())
    }
}
