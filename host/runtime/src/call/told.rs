//! What an attempt puts on record while it goes on: what was admitted, and the waits of its requests.

use std::pin::pin;
use std::sync::Arc;

use cofferdam_core::error::HostError;
use cofferdam_core::event::Step;
use cofferdam_core::limits::Limits;
use cofferdam_egress::resilience::Plan;
use cofferdam_sandbox::RateDelay;
use tokio::sync::mpsc;

use super::admit::Admitted;
use super::chain::Candidate;
use super::kept::{self, Whole};
use super::pipeline::Course;
use super::record::Record;
use super::request::Call;

/// What is on record of a candidate that was admitted, beside what its step says.
pub(super) struct AdmittedFacts<'a> {
    pub(super) version: &'a semver::Version,
    pub(super) bindings: Vec<&'a str>,
    pub(super) limits: &'a Limits,
    /// The key that its attempts carry, and whether it is made of one that the caller gave.
    pub(super) key: &'a str,
    pub(super) key_given: bool,
    /// The whole request; none for alternates, which are a part of it.
    pub(super) request: Option<Whole>,
}

/// What was admitted, and with what.
pub(super) fn put_on_record(
    call: &Call,
    candidate: &Candidate<'_>,
    plan: &Plan,
    admitted: &Admitted<'_>,
    course: &Course<'_>,
    record: &mut Record,
) -> Result<(), HostError> {
    let loaded = &admitted.loaded;
    if let Some(credentials) = &admitted.credentials {
        record.redactor().knows(credentials.scanner());
    }
    let bindings = admitted.credentials.iter().flat_map(|credentials| credentials.bindings()).collect();
    let actor = Arc::clone(record.on_record().actor());
    let request = (candidate.index == 0).then(|| kept::request(call, &actor, &course.idempotency_key));
    let facts = AdmittedFacts {
        version: candidate.connector.version(),
        bindings,
        limits: &admitted.limits,
        key: &course.idempotency_key,
        key_given: call.idempotency_key.is_some(),
        request,
    };
    let step = Step::Admitted {
        connector: candidate.connector.text(),
        hash: &loaded.hash,
        signer: loaded.signer.as_deref(),
        candidate: candidate.index,
        repeat: admitted.context.repeat_rule().max(course.strictest),
        profile: plan.profile.name(),
    };
    record.admitted(step, facts)
}

/// Runs an attempt to its end, and tells of the waits of its requests as they begin.
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
                record.step(Step::RateDelayed { host: &host, delay });
            }
            ended = &mut attempt => return ended,
        }
    }
}
