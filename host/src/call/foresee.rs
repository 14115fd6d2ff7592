//! What a call would be, without making it: which package, within what limits, with which bindings. Nothing runs,
//! nothing is recorded, and nothing leaves.

use std::sync::Arc;

use super::chain::Candidate;
use super::pipeline::Pipeline;
use super::request::Call;
use crate::credentials::{Choice, Refused};
use crate::error::Error;
use crate::failure::{AuditId, Context, Failure};
use crate::limits::Limits;
use crate::resilience::Profile;

/// What one candidate of a call would be.
pub(crate) struct Foreseen {
    /// The SHA-256 of its package.
    pub(crate) hash: Arc<str>,
    /// The id of the key that signed it.
    pub(crate) signer: Option<Arc<str>>,
    /// What it may use.
    pub(crate) limits: Limits,
    /// What is done where it fails.
    pub(crate) profile: Arc<Profile>,
    /// The bindings that it would use, or why it would not begin.
    pub(crate) bindings: Result<Vec<String>, Error>,
}

impl Pipeline {
    /// What each candidate of `call` would be; its arguments are looked at only where they `are_known`.
    ///
    /// # Errors
    /// What the first candidate that could not be would fail with, but for its bindings.
    pub(crate) async fn foresee(&self, call: &Call, are_known: bool) -> Result<Vec<Foreseen>, Error> {
        let audit_id = AuditId::mint();
        let mut foreseen = Vec::new();
        for candidate in std::iter::once(Candidate::first(call)).chain(Candidate::alternates(call)?) {
            foreseen.push(self.foresee_one(call, &candidate, &audit_id, are_known).await?);
        }
        Ok(foreseen)
    }

    async fn foresee_one(
        &self,
        call: &Call,
        candidate: &Candidate<'_>,
        audit_id: &AuditId,
        are_known: bool,
    ) -> Result<Foreseen, Error> {
        let connector = candidate.connector.text();
        let context = Context::new(audit_id.clone()).with_connector(Arc::clone(connector), None);
        let loaded = self.loader.load(&context, candidate.connector, connector, call.allow_unsigned).await?;
        let plan = self.settings.plan(candidate.connector.name(), call.retry.as_ref());
        let (context, limits) = self.suited(call, candidate, &plan, audit_id, &loaded)?;
        if are_known {
            self.fitting(call, candidate, &plan, audit_id, &loaded)?;
        }
        let manifest = loaded.checked.package.manifest();
        let choice = Choice::of(&candidate.identities(call, manifest), candidate.scope.map(|scope| &**scope));
        let bindings = match self.broker.for_call(manifest, &loaded.hash, choice).await {
            Ok(credentials) => {
                Ok(credentials.iter().flat_map(|all| all.bindings()).map(str::to_owned).collect())
            }
            Err(Refused::Binding(problem)) => Err(Failure::binding(&context, &problem).into()),
            Err(Refused::Host(error)) => Err(error.into()),
        };
        Ok(Foreseen {
            hash: Arc::clone(&loaded.hash),
            signer: loaded.signer.clone(),
            limits,
            profile: plan.profile,
            bindings,
        })
    }
}
