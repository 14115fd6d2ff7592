//! Records the events of an attempt while it runs: its admission, and the delays of its requests.

use std::pin::pin;
use std::sync::Arc;

use cofferdam_core::error::HostError;
use cofferdam_core::event::EventKind;
use cofferdam_core::limits::Limits;
use cofferdam_egress::resilience::RetryPlan;
use cofferdam_sandbox::RateDelay;
use tokio::sync::mpsc;

use super::admit::AdmittedCall;
use super::fallback::CallCandidate;
use super::kept::{self, Whole};
use super::pipeline::CallState;
use super::record::Record;
use super::request::Call;

/// The fields of an admitted candidate for the audit log, apart from those of its step.
pub(super) struct AdmittedFacts<'a> {
    pub(super) bindings: Vec<&'a str>,
    pub(super) limits: &'a Limits,
    /// The key that its attempts carry. `key_given` is true if it is derived from a caller's key.
    pub(super) key: &'a str,
    pub(super) key_given: bool,
    /// The whole request. None for fallbacks, which are a part of it.
    pub(super) request: Option<Whole>,
}

/// Records that a candidate was admitted, with its fields.
pub(super) fn put_on_record(
    call: &Call,
    candidate: &CallCandidate<'_>,
    plan: &RetryPlan,
    admitted: &AdmittedCall<'_>,
    state: &CallState<'_>,
    record: &mut Record,
) -> Result<(), HostError> {
    let loaded = &admitted.loaded;
    if let Some(credentials) = &admitted.credentials {
        record.redactor().add_scanner(credentials.scanner());
    }
    let bindings = admitted.credentials.iter().flat_map(|credentials| credentials.bindings()).collect();
    let actor = Arc::clone(record.on_record().actor());
    let request = (candidate.index == 0).then(|| kept::request(call, &actor, &state.idempotency_key));
    let facts = AdmittedFacts {
        bindings,
        limits: &admitted.limits,
        key: &state.idempotency_key,
        key_given: call.idempotency_key.is_some(),
        request,
    };
    let step = EventKind::Admitted {
        connector: candidate.connector.text(),
        hash: &loaded.hash,
        signer: loaded.signer.as_deref(),
        candidate: candidate.index,
        repeat: admitted.context.repeat_rule().max(state.strictest),
        profile: plan.profile.name(),
    };
    record.admitted(step, facts)
}

/// Runs an attempt to its end, and reports the delays of its requests as they begin.
pub(super) async fn telling<E>(
    attempt: impl Future<Output = E>,
    delays: Option<mpsc::UnboundedReceiver<RateDelay>>,
    record: &mut Record,
) -> E {
    let mut attempt = pin!(attempt);
    let Some(mut delays) = delays else { return attempt.await };
    loop {
        tokio::select! {
            biased;
            Some(RateDelay { host, delay }) = delays.recv() => {
                record.step(EventKind::RateDelayed { host: &host, delay });
            }
            ended = &mut attempt => return ended,
        }
    }
}
