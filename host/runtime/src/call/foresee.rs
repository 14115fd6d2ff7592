//! What a call would be, without making it: which package, within what limits, with which bindings. Nothing runs,
//! nothing is recorded, and nothing leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::error::Error;
use cofferdam_core::failure::{AuditId, Context, Failure};
use cofferdam_core::limits::Limits;
use cofferdam_egress::credentials::{Choice, Refused};
use cofferdam_egress::resilience::{CircuitView, Profile};
use cofferdam_model::manifest::Manifest;

use super::chain::Candidate;
use super::pipeline::Pipeline;
use super::request::Call;
use super::same::{Asked, none_twice};
use super::vet::of_alternate;

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
    /// The hosts within its reach, as `host:port`, whose circuit is open for it now.
    pub(crate) open_circuits: Vec<String>,
}

impl Pipeline {
    /// What each candidate of `call` would be; its arguments are looked at only where they `are_known`.
    ///
    /// # Errors
    /// What the call would be refused with before any of it ran, but for the bindings of its candidates.
    pub(crate) async fn foresee(&self, call: &Call, are_known: bool) -> Result<Vec<Foreseen>, Error> {
        let audit_id = AuditId::mint();
        let mut candidates = vec![Candidate::first(call)];
        candidates.extend(Candidate::alternates(call)?);
        let (mut foreseen, mut asked) = (Vec::new(), Vec::new());
        for candidate in &candidates {
            let (one, identities) = match self.foresee_one(call, candidate, &audit_id, are_known).await {
                Err(Error::Host(error)) if candidate.index > 0 => {
                    return Err(of_alternate(candidate, error).into());
                }
                one => one?,
            };
            foreseen.push(one);
            asked.push(Asked { candidate, identities });
        }
        if are_known {
            none_twice(call, &asked)?;
        }
        Ok(foreseen)
    }

    /// What the candidate would be, and the identity that it would use of each service.
    async fn foresee_one(
        &self,
        call: &Call,
        candidate: &Candidate<'_>,
        audit_id: &AuditId,
        are_known: bool,
    ) -> Result<(Foreseen, BTreeMap<String, String>), Error> {
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
        let identities = choice.used(manifest.credentials());
        let bindings = match self.broker.for_call(manifest, &loaded.hash, choice).await {
            Ok(credentials) => {
                Ok(credentials.iter().flat_map(|all| all.bindings()).map(str::to_owned).collect())
            }
            Err(Refused::Binding(problem)) => Err(Failure::binding(&context, &problem).into()),
            Err(Refused::Host(error)) => Err(error.into()),
        };
        let open_circuits = match plan.breaker {
            Some(_) => self.open_circuits(candidate, manifest, bindings.as_deref().unwrap_or_default()),
            None => Vec::new(),
        };
        let foreseen = Foreseen {
            hash: Arc::clone(&loaded.hash),
            signer: loaded.signer.clone(),
            limits,
            profile: plan.profile,
            bindings,
            open_circuits,
        };
        Ok((foreseen, identities))
    }

    /// The hosts that the candidate may reach and whose circuit lets no request of its pass now. What cannot be read
    /// counts as closed, as it does for calls.
    fn open_circuits(
        &self,
        candidate: &Candidate<'_>,
        manifest: &Manifest,
        bindings: &[String],
    ) -> Vec<String> {
        let hosts = candidate.scope.map_or(manifest.hosts(), |scope| scope.hosts());
        let reached = |at: &str| hosts.iter().any(|host| format!("{}:{}", host.host(), host.port()) == at);
        let views = self.circuits.views(self.loader.clock.timestamp()).unwrap_or_default();
        let shut = |view: &CircuitView| {
            let now = view.open.as_ref().is_some_and(|open| open.retry_after_ms > 0 || open.probe_is_out);
            let whose = |of: &[String]| match of.is_empty() {
                true => bindings.is_empty(),
                false => of.iter().any(|name| bindings.contains(name)),
            };
            now || view.open_for_good.iter().any(|shut| whose(&shut.bindings))
        };
        let own = views.into_iter().filter(|view| view.connector == candidate.connector.name().as_str());
        own.filter(|view| reached(&view.host) && shut(view)).map(|view| view.host).collect()
    }
}
