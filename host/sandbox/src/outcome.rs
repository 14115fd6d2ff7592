//! From how an attempt stopped to what the caller gets: a value, or one failure of the taxonomy.
//!
//! The order is the contract: a gate's verdict outranks everything (a denied guest cannot return ok),
//! then the deadline, then the trap, then what the guest says; and what the gate saw outranks what the
//! guest says of the network.

use cofferdam_core::error::HostError;
use cofferdam_core::failure::{
    Context, Denial, DenialCode, Failure, LimitHit, LimitKind, NetworkFault, Phase, RuntimeFault,
    UpstreamFault, safe_line,
};
use cofferdam_core::limits;
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_core::secret::{Found, Scanner};
use cofferdam_egress::egress::remedy;
use serde_json::Value;

use super::gates::ledger::{Ledger, Verdict};
use super::limiter::Refused;
use super::traps::Ending;
use super::values::{Answer, Returned, Unreadable};

/// The longest guest text kept for the operator, in characters.
const DETAIL_CHARS: usize = 2_000;

/// The failure for a gate's verdict; or, where the verdict is the host's own trouble, that.
pub(super) fn of_verdict(context: &Context, verdict: Verdict, ledger: &Ledger) -> Result<Failure, HostError> {
    Ok(match verdict {
        Verdict::Denied(denial) => Failure::capability_denied(context, &denial),
        Verdict::Limit(hit) => Failure::resource_limit_exceeded(context, hit),
        Verdict::Binding(problem) => Failure::binding(context, &problem),
        Verdict::Circuit(open) => Failure::circuit_open(context, &open, ledger.anything_sent()),
        Verdict::Host(trouble) if ledger.anything_sent() => {
            Failure::vault_unavailable(context, trouble.kind.code())
                .with_operator_note(format!("{} {}", trouble.message, trouble.hint))
        }
        Verdict::Host(trouble) => {
            return Err(HostError::new(trouble.kind, trouble.message).hint(trouble.hint));
        }
    })
}

/// The failure for a guest that was ended by an error.
pub(super) fn of_ending(context: &Context, ending: Ending) -> Failure {
    match ending {
        Ending::Limit(hit) => Failure::resource_limit_exceeded(context, hit),
        Ending::Fault(fault) => Failure::connector_runtime_error(context, fault),
    }
}

/// What the guest returned: its value, or the failure that it reports. Neither passes with a secret in it: a guest
/// holds none, but a service may have given it one in a form that the gate's search does not know.
pub(super) fn of_result<A: Answer>(
    context: &Context,
    result: Result<Returned<A>, Unreadable>,
    ledger: &Ledger,
    scanner: Option<&Scanner>,
) -> Result<A, Failure> {
    if let (Some(scanner), Ok(returned)) = (scanner, &result)
        && let Some((what, found)) = secret_in(scanner, returned)
    {
        let bindings = (!found.binding.is_empty()).then(|| found.binding.to_string()).into_iter().collect();
        let denial = Denial::of_secret(DenialCode::SecretReflected, what, bindings);
        return Err(Failure::capability_denied(context, &denial));
    }
    let over = |limit, configured: usize, used| {
        let hit = LimitHit::new(limit, configured as u64, used);
        Err(Failure::resource_limit_exceeded(context, hit))
    };
    match result {
        Ok(Returned::Value(value)) => Ok(value),
        Ok(Returned::Failure(failure)) => Err(of_guest_failure(context, &failure, ledger, scanner)),
        Err(Unreadable::TooLong(used)) => over(LimitKind::Payload, limits::PAYLOAD_BYTES, used),
        Err(Unreadable::TooLarge) => {
            over(LimitKind::HostTransfer, limits::RESULT_BYTES, limits::RESULT_BYTES as u64 + 1)
        }
        Err(Unreadable::NoRoom) => {
            let Refused(hit) = ledger.memory().exhausted();
            Err(Failure::resource_limit_exceeded(context, hit))
        }
        Err(Unreadable::Malformed) => {
            let fault = RuntimeFault::OutputMalformed("a value of another type");
            Err(Failure::connector_runtime_error(context, fault))
        }
    }
}

/// A secret in what callers would get of it, and what that is. The detail of a failure is for the operator, and
/// loses the secret alone.
fn secret_in<A: Answer>(scanner: &Scanner, returned: &Returned<A>) -> Option<(&'static str, Found)> {
    match returned {
        Returned::Value(value) => value.find_secret(scanner).map(|found| ("result", found)),
        Returned::Failure(failure) => {
            let records = failure.as_object()?.values().filter_map(Value::as_object);
            let mut shown = records.flatten().filter(|(name, _)| *name != "detail");
            shown.find_map(|(_, value)| scanner.find_in_json(value)).map(|found| ("failure", found))
        }
    }
}

/// The failure that the guest reports, from the contract's variant as JSON.
fn of_guest_failure(
    context: &Context,
    failure: &Value,
    ledger: &Ledger,
    scanner: Option<&Scanner>,
) -> Failure {
    let malformed =
        || Failure::connector_runtime_error(context, RuntimeFault::OutputMalformed("an unknown failure"));
    let case = failure.as_object().and_then(|cases| cases.iter().next());
    let Some((case, record)) = case else { return malformed() };
    let record = Fields(record);
    let failure = match case.as_str() {
        "upstream" => match record.number("status") {
            Some(status) => of_upstream(context, status, record, ledger),
            None => return malformed(),
        },
        "network" => of_network(context, record, ledger),
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
            failure.with_operator_note(format!("connector: {}", safe_line(&detail, DETAIL_CHARS)))
        }
        None => failure,
    }
}

fn of_upstream(context: &Context, status: u16, record: Fields<'_>, ledger: &Ledger) -> Failure {
    let seen = ledger.status(status);
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

fn of_network(context: &Context, record: Fields<'_>, ledger: &Ledger) -> Failure {
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

const PHASES: [Phase; 5] = [Phase::Dns, Phase::Connect, Phase::Tls, Phase::Send, Phase::Response];

/// A record's fields by name; what is missing or of another type reads as none.
#[derive(Clone, Copy)]
struct Fields<'r>(&'r Value);

impl Fields<'_> {
    fn text(self, name: &str) -> Option<String> {
        self.0.get(name)?.as_str().map(str::to_owned)
    }

    fn number(self, name: &str) -> Option<u16> {
        self.0.get(name)?.as_u64().and_then(|number| number.try_into().ok())
    }
}
