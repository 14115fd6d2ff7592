//! Previews a call without making it: its package, its limits and its bindings. Nothing runs, is recorded or is
//! sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::error::Error;
use cofferdam_core::failure::{AuditId, Failure, FailureContext};
use cofferdam_core::limits::Limits;
use cofferdam_core::secret::Scanner;
use cofferdam_egress::credentials::{CallCredentials, CredentialError, IdentitySelection};
use cofferdam_egress::resilience::{CircuitView, RetryProfile};
use cofferdam_model::manifest::Manifest;

use super::admit::{fallback_error, known_operation};
use super::fallback::CallCandidate;
use super::fallback::{ResolvedCandidate, reject_duplicates};
use super::pipeline::CallPipeline;
use super::request::Call;

/// The preview of one candidate of a call.
pub(crate) struct CallPreview {
    /// The SHA-256 of its package.
    pub(crate) hash: Arc<str>,
    /// The id of the key that signed it.
    pub(crate) signer: Option<Arc<str>>,
    /// The limits of the call.
    pub(crate) limits: Limits,
    /// The retry profile.
    pub(crate) profile: Arc<RetryProfile>,
    /// The bindings that it would use, or the error that would keep it from starting.
    pub(crate) bindings: Result<Vec<String>, Error>,
    /// The hosts within its reach, as `host:port`, whose circuit is open for it now.
    pub(crate) open_circuits: Vec<String>,
    /// The scanner for the secrets that it could carry. None if it carries none, or if they cannot be read.
    scanner: Option<Arc<Scanner>>,
}

impl CallPipeline {
    /// Previews each candidate of `call`. The arguments are checked only if they `are_known`.
    ///
    /// # Errors
    /// The errors that the call would be refused with before any of it ran, except for the bindings of its
    /// candidates.
    pub(crate) async fn preview(&self, call: &Call, are_known: bool) -> Result<Vec<CallPreview>, Error> {
        let audit_id = AuditId::mint();
        let mut candidates = vec![CallCandidate::first(call)];
        candidates.extend(CallCandidate::fallbacks(call)?);
        let (mut foreseen, mut asked) = (Vec::new(), Vec::new());
        for candidate in &candidates {
            let (one, identities) = match self.preview_candidate(call, candidate, &audit_id, are_known).await
            {
                Err(Error::Host(error)) if candidate.index > 0 => {
                    return Err(fallback_error(candidate, error).into());
                }
                one => one?,
            };
            foreseen.push(one);
            asked.push(ResolvedCandidate { candidate, identities });
        }
        if are_known {
            reject_duplicates(call, &asked)?;
        }
        Ok(foreseen)
    }

    /// Returns the scanners for the secrets that the candidates of `call` could carry, as far as those can be read.
    pub(crate) async fn scanners(&self, call: &Call) -> Vec<Arc<Scanner>> {
        let mut candidates = vec![CallCandidate::first(call)];
        candidates.extend(CallCandidate::fallbacks(call).unwrap_or_default());
        let (audit_id, mut scanners) = (AuditId::mint(), Vec::new());
        for candidate in &candidates {
            let previewed = self.preview_candidate(call, candidate, &audit_id, false).await;
            scanners.extend(previewed.ok().and_then(|(preview, _)| preview.scanner));
        }
        scanners
    }

    /// Previews one candidate, and returns the identity that it would use for each service.
    async fn preview_candidate(
        &self,
        call: &Call,
        candidate: &CallCandidate<'_>,
        audit_id: &AuditId,
        are_known: bool,
    ) -> Result<(CallPreview, BTreeMap<String, String>), Error> {
        let connector = candidate.connector.text();
        let context = FailureContext::new(audit_id.clone()).with_connector(Arc::clone(connector), None);
        let loaded = self.loader.load(&context, candidate.connector, connector, call.allow_unsigned).await?;
        let plan = self.settings.plan(candidate.connector.name(), call.retry.as_ref());
        let operation = known_operation(&loaded, connector, candidate.op)?;
        let (context, limits) = self.check_limits(call, candidate, &plan, audit_id, &loaded, operation)?;
        if are_known {
            self.check_request(call, candidate, &plan, audit_id, &loaded, operation)?;
        }
        let manifest = loaded.checked.package.manifest();
        let choice = IdentitySelection::new(
            &candidate.identities(call, manifest),
            candidate.scope.map(|scope| &**scope),
        );
        let identities = choice.used(manifest.credentials());
        let credentials = self.broker.for_call(manifest, &loaded.hash, choice).await;
        let scanner = credentials.as_ref().ok().and_then(Option::as_ref).map(CallCredentials::scanner);
        let bindings = match credentials {
            Ok(credentials) => {
                Ok(credentials.iter().flat_map(|all| all.bindings()).map(str::to_owned).collect())
            }
            Err(CredentialError::Binding(problem)) => Err(Failure::binding(&context, &problem).into()),
            Err(CredentialError::Host(error)) => Err(error.into()),
        };
        let open_circuits = match plan.breaker {
            Some(_) => self.open_circuits(candidate, manifest, bindings.as_deref().unwrap_or_default()),
            None => Vec::new(),
        };
        let foreseen = CallPreview {
            hash: Arc::clone(&loaded.hash),
            signer: loaded.signer.clone(),
            limits,
            profile: plan.profile,
            bindings,
            open_circuits,
            scanner,
        };
        Ok((foreseen, identities))
    }

    /// Returns the hosts that the candidate may reach and whose circuit lets none of its requests pass now. A
    /// circuit that cannot be read counts as closed, as it does for calls.
    fn open_circuits(
        &self,
        candidate: &CallCandidate<'_>,
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
