//! The check of a whole chain before any of it runs: what is wrong with an alternate is found by the call that names
//! it, and not in the outage it was meant for.

use std::sync::Arc;

use cofferdam_core::error::{Error, HostError};
use cofferdam_core::failure::{AuditId, Context, RepeatRule};
use cofferdam_egress::credentials::Choice;

use super::chain::Candidate;
use super::pipeline::Pipeline;
use super::request::Call;
use super::same::{Asked, none_twice};

impl Pipeline {
    /// Loads the candidates of a chain, and asks of each what its attempts will be asked but for bindings: that it
    /// is installed, trusted, within its action and its limits, that its arguments fit, that it may be repeated, and
    /// that it does not ask what another asks already.
    /// Loading compiles what was not compiled yet, once; it is also what makes the next candidate quick to answer.
    ///
    /// Returns the strictest rule for repeating any of them.
    pub(super) async fn vet<'c>(
        &self,
        call: &'c Call,
        first: &Candidate<'c>,
        alternates: &[Candidate<'c>],
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
        candidate: &'a Candidate<'c>,
        audit_id: &AuditId,
    ) -> Result<(Asked<'a, 'c>, RepeatRule), Error> {
        let connector = candidate.connector.text();
        let context = Context::new(audit_id.clone()).with_connector(Arc::clone(connector), None);
        let loaded = self.loader.load(&context, candidate.connector, connector, call.allow_unsigned).await?;
        let plan = self.settings.plan(candidate.connector.name(), call.retry.as_ref());
        // The arguments that are made here are gone before anything else is waited for: one candidate's at a time.
        self.fitting(call, candidate, &plan, audit_id, &loaded)?;
        let manifest = loaded.checked.package.manifest();
        let choice = Choice::of(&candidate.identities(call, manifest), candidate.scope.map(|scope| &**scope));
        let asked = Asked { candidate, identities: choice.used(manifest.credentials()) };
        Ok((asked, manifest.repeat_rule(candidate.op)))
    }
}

/// The error, with whose it is.
pub(super) fn of_alternate(candidate: &Candidate<'_>, error: HostError) -> HostError {
    if error.details().contains_key("candidate") {
        return error;
    }
    let refused = candidate.refuses(error.kind(), error.message().trim_end_matches('.'));
    match error.hint_text() {
        Some(hint) => refused.hint(hint),
        None => refused,
    }
}
