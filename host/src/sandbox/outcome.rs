//! From how an attempt stopped to what the caller gets: a value, or one failure of the taxonomy.
//!
//! The order is the contract: a gate's verdict outranks everything (a denied guest cannot return ok),
//! then the deadline, then the trap, then what the guest says; and what the gate saw outranks what the
//! guest says of the network.

use serde_json::Value;
use wasmtime::component::Val;

use super::gates::ledger::{Ledger, Verdict};
use super::traps::Ending;
use super::values;
use crate::failure::{
    Context, Failure, LimitHit, LimitKind, NetworkFault, Phase, RuntimeFault, UpstreamFault, safe_line,
};
use crate::limits;
use crate::package::Shape;

/// The longest guest text kept for the operator, in characters.
const DETAIL_CHARS: usize = 2_000;

/// The failure for a gate's verdict.
pub(super) fn of_verdict(context: &Context, verdict: Verdict) -> Failure {
    match verdict {
        Verdict::Denied(denial) => Failure::capability_denied(context, &denial),
        Verdict::Limit(hit) => Failure::resource_limit_exceeded(context, hit),
    }
}

/// The failure for a guest that was ended by an error.
pub(super) fn of_ending(context: &Context, ending: Ending) -> Failure {
    match ending {
        Ending::Limit(hit) => Failure::resource_limit_exceeded(context, hit),
        Ending::Fault(fault) => Failure::connector_runtime_error(context, fault),
    }
}

/// What the guest returned: its value as JSON, or the failure that it reports.
pub(super) fn of_result(
    context: &Context,
    shape: Option<&Shape>,
    result: Val,
    ledger: &Ledger,
) -> Result<Value, Failure> {
    let unusable = |what| Failure::connector_runtime_error(context, RuntimeFault::OutputMalformed(what));
    let Val::Result(result) = result else {
        return Err(unusable("not a result"));
    };
    let value = match (result, shape) {
        (Ok(None), None) => Value::Null,
        (Ok(Some(value)), Some(shape)) => {
            values::lift(shape, *value).map_err(|_| unusable("a value of another type"))?
        }
        (Ok(_), _) => return Err(unusable("a value of another type")),
        (Err(failure), _) => return Err(of_guest_failure(context, failure.map(|val| *val), ledger)),
    };
    let size = values::json_size(&value);
    if size > limits::PAYLOAD_BYTES as u64 {
        let hit =
            LimitHit { limit: LimitKind::Payload, configured: limits::PAYLOAD_BYTES as u64, used: size };
        return Err(Failure::resource_limit_exceeded(context, hit));
    }
    Ok(value)
}

fn of_guest_failure(context: &Context, failure: Option<Val>, ledger: &Ledger) -> Failure {
    let malformed =
        || Failure::connector_runtime_error(context, RuntimeFault::OutputMalformed("an unknown failure"));
    let Some(Val::Variant(case, Some(payload))) = failure else {
        return malformed();
    };
    let Val::Record(fields) = *payload else {
        return malformed();
    };
    let record = Fields(fields);
    let failure = match case.as_str() {
        "upstream" => match record.number("status") {
            Some(status) => of_upstream(context, status, &record, ledger),
            None => return malformed(),
        },
        "network" => of_network(context, &record, ledger),
        "invalid-input" => {
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
                transient: matches!(record.get("transient"), Some(Val::Bool(true))),
            };
            Failure::connector_runtime_error(context, fault)
        }
        _ => return malformed(),
    };
    match record.text("detail") {
        Some(detail) => {
            failure.with_operator_note(format!("connector: {}", safe_line(&detail, DETAIL_CHARS)))
        }
        None => failure,
    }
}

fn of_upstream(context: &Context, status: u16, record: &Fields, ledger: &Ledger) -> Failure {
    let seen = ledger.status(status);
    let fault = UpstreamFault {
        status,
        upstream_code: record.text("code"),
        observed: seen.is_some(),
        retry_after_ms: seen.as_ref().and_then(|seen| seen.retry_after_ms),
        host: seen.map(|seen| seen.host),
    };
    Failure::external_api_error(context, fault)
}

fn of_network(context: &Context, record: &Fields, ledger: &Ledger) -> Failure {
    let claimed = match record.get("phase") {
        Some(Val::Option(Some(phase))) => match &**phase {
            Val::Enum(name) => PHASES.iter().find(|phase| phase.name() == name).copied(),
            _ => None,
        },
        _ => None,
    };
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
    Failure::network_error(context, fault)
}

const PHASES: [Phase; 5] = [Phase::Dns, Phase::Connect, Phase::Tls, Phase::Send, Phase::Response];

/// A record's fields by name; what is missing or of another type reads as none.
struct Fields(Vec<(String, Val)>);

impl Fields {
    fn get(&self, name: &str) -> Option<&Val> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.get(name)? {
            Val::String(text) => Some(text.clone()),
            Val::Option(Some(inner)) => match &**inner {
                Val::String(text) => Some(text.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<u16> {
        match self.get(name)? {
            Val::U16(number) => Some(*number),
            _ => None,
        }
    }
}
