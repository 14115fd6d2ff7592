//! The check of a whole chain before any of it runs: what is wrong with an alternate is found by the call that names
//! it, and not in the outage it was meant for.

use std::sync::Arc;

use super::chain::Candidate;
use super::pipeline::Pipeline;
use super::request::Call;
use crate::error::{Error, HostError};
use crate::failure::{AuditId, Context};

impl Pipeline {
    /// Loads the candidates of a chain, and asks of each what its attempts will be asked but for bindings: that it
    /// is installed, trusted, within its action and its limits, that its arguments fit, and that it may be repeated.
    /// Loading compiles what was not compiled yet, once; it is also what makes the next candidate quick to answer.
    pub(super) async fn vet(
        &self,
        call: &Call,
        first: &Candidate<'_>,
        alternates: &[Candidate<'_>],
        audit_id: &AuditId,
    ) -> Result<(), Error> {
        if alternates.is_empty() {
            return Ok(());
        }
        for candidate in std::iter::once(first).chain(alternates) {
            self.vet_one(call, candidate, audit_id).await.map_err(|error| match error {
                Error::Host(error) if candidate.index > 0 => of_alternate(candidate, error).into(),
                error => error,
            })?;
        }
        Ok(())
    }

    async fn vet_one(&self, call: &Call, candidate: &Candidate<'_>, audit_id: &AuditId) -> Result<(), Error> {
        let connector = candidate.connector.text();
        let context = Context::new(audit_id.clone()).with_connector(Arc::clone(connector), None);
        let loaded = self.loader.load(&context, candidate.connector, connector, call.allow_unsigned).await?;
        let plan = self.settings.plan(candidate.connector.name(), call.retry.as_ref());
        self.fitting(call, candidate, &plan, audit_id, &loaded).map(drop)
    }
}

/// The error, with whose it is.
fn of_alternate(candidate: &Candidate<'_>, error: HostError) -> HostError {
    if error.details().contains_key("candidate") {
        return error;
    }
    let refused = candidate.refuses(error.kind(), error.message().trim_end_matches('.'));
    match error.hint_text() {
        Some(hint) => refused.hint(hint),
        None => refused,
    }
}
