//! Checks a whole chain before any of it runs, so that a fault in a fallback is found by the first call that names
//! it and not during the outage that the fallback is for.

use std::sync::Arc;

use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::{AuditId, FailureContext, RepeatRule};
use cofferdam_egress::credentials::IdentityChoice;

use super::chain::CallCandidate;
use super::pipeline::CallPipeline;
use super::request::Call;
use super::same::{ResolvedCandidate, none_twice};

impl CallPipeline {
    /// Loads the candidates of a chain, and makes the checks of an attempt except those for bindings: the candidate
    /// is installed, trusted, within its action and its limits, its arguments fit, it may be repeated, and it does
    /// not repeat an earlier candidate. Loading compiles what was not compiled yet, once. So the next candidate can
    /// answer quickly.
    ///
    /// Returns the strictest repeat rule of the candidates.
    pub(super) async fn vet<'c>(
        &self,
        call: &'c Call,
        first: &CallCandidate<'c>,
        alternates: &[CallCandidate<'c>],
        audit_id: &AuditId,
    ) -> Result<RepeatRule, Error> {
        let mut strictest = RepeatRule::Always;
        if alternates.is_empty() {
            return Ok(strictest);
        }
        let mut asked = Vec::with_capacity(alternates.len().saturating_add(1));
        for candidate in std::iter::once(first).chain(alternates) {
            let vetted = self.vet_one(call, candidate, audit_id).await;
            let (one, repeat) = vetted.map_err(|error| match error {
                Error::Host(error) if candidate.index > 0 => of_alternate(candidate, error).into(),
                error => error,
            })?;
            strictest = strictest.max(repeat);
            asked.push(one);
        }
        none_twice(call, &asked)?;
        Ok(strictest)
    }

    async fn vet_one<'a, 'c>(
        &self,
        call: &'c Call,
        candidate: &'a CallCandidate<'c>,
        audit_id: &AuditId,
    ) -> Result<(ResolvedCandidate<'a, 'c>, RepeatRule), Error> {
        let connector = candidate.connector.text();
        let context = FailureContext::new(audit_id.clone()).with_connector(Arc::clone(connector), None);
        let loaded = self.loader.load(&context, candidate.connector, connector, call.allow_unsigned).await?;
        let plan = self.settings.plan(candidate.connector.name(), call.retry.as_ref());
        // The arguments that are built here are dropped before the next wait, so that only one candidate's are in
        // memory.
        self.fitting(call, candidate, &plan, audit_id, &loaded)?;
        let manifest = loaded.checked.package.manifest();
        let choice =
            IdentityChoice::of(&candidate.identities(call, manifest), candidate.scope.map(|scope| &**scope));
        let asked = ResolvedCandidate { candidate, identities: choice.used(manifest.credentials()) };
        Ok((asked, manifest.repeat_rule(candidate.op)))
    }
}

/// Adds the candidate to the error.
pub(super) fn of_alternate(candidate: &CallCandidate<'_>, error: HostError) -> HostError {
    if error.details().contains_key("candidate") {
        return error;
    }
    let refused = candidate.refuses(error.kind(), error.message().trim_end_matches('.'));
    match error.hint() {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}
