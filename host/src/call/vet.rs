//! The check of a whole chain before any of it runs: what is wrong with an alternate is found by the call that names
//! it, and not in the outage it was meant for.

use std::sync::Arc;

use super::chain::Candidate;
use super::pipeline::Pipeline;
use super::request::Call;
use super::same::{Asked, none_twice};
use crate::credentials::Choice;
use crate::error::{Error, HostError};
use crate::failure::{AuditId, Context};

impl Pipeline {
    /// Loads the candidates of a chain, and asks of each what its attempts will be asked but for bindings: that it
    /// is installed, trusted, within its action and its limits, that its arguments fit, that it may be repeated, and
    /// that it does not ask what another asks already.
    /// Loading compiles what was not compiled yet, once; it is also what makes the next candidate quick to answer.
    pub(super) async fn vet<'c>(
        &self,
        call: &'c Call,
        first: &Candidate<'c>,
        alternates: &[Candidate<'c>],
        audit_id: &AuditId,
    ) -> Result<(), Error> {
        if alternates.is_empty() {
            return Ok(());
        }
        let mut asked = Vec::with_capacity(alternates.len().saturating_add(1));
        for candidate in std::iter::once(first).chain(alternates) {
            let vetted = self.vet_one(call, candidate, audit_id).await;
            asked.push(vetted.map_err(|error| match error {
                Error::Host(error) if candidate.index > 0 => of_alternate(candidate, error).into(),
                error => error,
            })?);
        }
        Ok(none_twice(call, &asked)?)
    }

    async fn vet_one<'a, 'c>(
        &self,
        call: &'c Call,
        candidate: &'a Candidate<'c>,
        audit_id: &AuditId,
    ) -> Result<Asked<'a, 'c>, Error> {
        let connector = candidate.connector.text();
        let context = Context::new(audit_id.clone()).with_connector(Arc::clone(connector), None);
        let loaded = self.loader.load(&context, candidate.connector, connector, call.allow_unsigned).await?;
        let plan = self.settings.plan(candidate.connector.name(), call.retry.as_ref());
        // The arguments that are made here are gone before anything else is waited for: one candidate's at a time.
        self.fitting(call, candidate, &plan, audit_id, &loaded)?;
        let manifest = loaded.checked.package.manifest();
        let choice = Choice::of(&candidate.identities(call, manifest), candidate.scope.map(|scope| &**scope));
        Ok(Asked { candidate, identities: choice.used(manifest.credentials()) })
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
