//! The public API: a builder, and a facade over all functions of a host.

mod access_query;
mod actions;
mod active;
mod approvals;
mod audit;
mod binding_test;
mod bindings;
mod builder;
mod consent;
mod difference;
mod export;
mod grant_requests;
mod inspection;
mod install;
mod operator;
mod readiness;
mod recovery;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::operator::OperatorAction;
use cofferdam_core::failure::{AuditId, Failure, FailureContext, sanitize_line};
use cofferdam_core::suggest;
use cofferdam_egress::credentials::CredentialError;
use cofferdam_egress::egress::HostRequestClient;
use cofferdam_egress::resilience::{RateLimit, RateLimitUse, RetryProfile};
use cofferdam_egress::vault::{BindingName, Vault};
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::registry::{RebuiltIndex, RegistryEntry};
use cofferdam_model::trust::{KeyId, KeyringFile};
use jiff::Timestamp;
use semver::Version;
use serde_json::Value;

pub use crate::log_errors::unreadable;
pub use access_query::{AccessDecision, AccessQuery};
pub use active::Activated;
pub use approvals::{ApprovalAnswer, ApprovalDecision};
pub use audit::{Audit, VerificationReport};
pub use binding_test::{BindingTest, TestAnswer};
pub use bindings::{
    BindingInspection, BindingVerdict, BindingView, CredentialConsumer, NewBinding, STALE_AFTER_DAYS,
};
pub use builder::CODE_CACHE_BYTES;
pub use builder::{HostBuilder, SharedState};
pub use consent::{Consent, PackageReview};
pub use difference::{ChangeSeverity, ComparedPackage, PackageChange, PackageDifference};
pub use export::{ExportSummary, verify_export};
pub use grant_requests::GrantRequest;
pub use inspection::{
    CredentialView, ImportView, InstalledPackage, InstalledRevision, LimitView, OperationView,
    PackageInspection, RevisionGround, SignatureView,
};
pub use install::{InstallOptions, Installed};
pub use operator::{OperatorChange, keyring_changes};
pub use recovery::ReplayedCall;

use self::operator::{ChangeRecorder, activation, package_state};
use crate::call::{Call, CallPipeline, CallResult, ConnectorRef};
use crate::flow::actions::ActionStore;

/// A host of connectors: cheap to clone, safe to share.
#[derive(Clone)]
pub struct Host {
    pipeline: Arc<CallPipeline>,
    vault: Arc<dyn Vault>,
    audit: Audit,
    action_store: ActionStore,
    /// Sends the host's own requests.
    requests: HostRequestClient,
}

impl Host {
    /// Starts to configure a host.
    #[must_use]
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }

    /// Calls an operation with its default limits. `args` is an object with one field per parameter.
    ///
    /// Dropping the future cancels the call: the guest and its requests end at once.
    ///
    /// # Errors
    /// [`Error::Failure`] is the outcome of a call that ran, or was not allowed to run; [`Error::Host`] is the
    /// reason that a call was refused (unknown operation, arguments of the wrong type).
    pub async fn call(&self, connector: &ConnectorRef, op: &str, args: Value) -> Result<Value, Error> {
        self.run(Call::new(connector.clone(), op, args)).await.outcome
    }

    /// Runs a call with its own limits and options, and reports every attempt with its usage, every wait, and the
    /// candidate that returned the value.
    ///
    /// Dropping the future cancels the call, as in [`Host::call`].
    pub async fn run(&self, call: Call) -> CallResult {
        self.pipeline.run(call).await
    }

    /// Runs a call as [`Host::run`] does, and returns its value as compact JSON text. With arguments from
    /// [`Call::from_text`], no [`Value`] is built on either side: use both for large arguments and results, and for
    /// data that is only passed on.
    pub async fn run_text(&self, call: Call) -> CallResult<String> {
        self.pipeline.run(call).await
    }

    /// Returns the retry profile of this name: the operator's own, or a built-in one.
    ///
    /// # Errors
    /// `validation`: there is none. The error lists the existing ones.
    pub fn profile(&self, name: &str) -> Result<Arc<RetryProfile>, HostError> {
        let settings = &self.pipeline.settings;
        settings.profile(name).ok_or_else(|| {
            let names: Vec<_> = settings.profile_names().collect();
            let hint = match suggest::nearest(name, names.iter().copied()) {
                Some(near) => format!("Did you mean `{near}`? There are: {}", names.join(", ")),
                None => format!("There are: {}", names.join(", ")),
            };
            let message = format!("There is no retry profile `{}`.", sanitize_line(name, 100));
            HostError::new(HostErrorKind::Validation, message).with_hint(hint)
        })
    }

    /// Returns the retry profile of the calls of `connector` that name none.
    #[must_use]
    pub fn profile_for(&self, connector: &ConnectorName) -> Arc<RetryProfile> {
        self.pipeline.settings.plan(connector, None).profile
    }

    /// Returns the rate limit of the requests of `connector` to each host; none if it has none.
    #[must_use]
    pub fn rate_limit_for(&self, connector: &ConnectorName) -> Option<RateLimit> {
        self.pipeline.settings.plan(connector, None).rate
    }

    /// Returns the hosts at which requests of `connector` from this process count against its rate limit now; none if the
    /// hosts of a cluster share the limits.
    #[must_use]
    pub fn rate_limit_uses(&self, connector: &ConnectorName) -> Option<Vec<RateLimitUse>> {
        self.pipeline.rates.uses(connector.as_str(), self.audit.clock.now())
    }

    /// Returns the time of the host's clock.
    #[must_use]
    pub fn timestamp(&self) -> Timestamp {
        self.audit.clock.timestamp()
    }

    /// Returns the actor of the calls that name none.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.pipeline.audit.settings().actor
    }

    /// Returns the time for which an outcome stands under an idempotency key.
    #[must_use]
    pub fn key_ttl(&self) -> Duration {
        self.pipeline.audit.settings().key_ttl
    }

    /// Checks whether a caller may give this idempotency key.
    ///
    /// # Errors
    /// `validation`, with the rules for keys.
    pub fn check_key(key: &str) -> Result<(), HostError> {
        crate::call::check_key(key)
    }

    /// Returns the names of all retry profiles: built-in ones, and the operator's own.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        self.pipeline.settings.profile_names()
    }

    /// Checks that the binding can be used: it exists, and for a kind with tokens its issuer grants one. A valid
    /// token is not renewed.
    ///
    /// # Errors
    /// `binding_required` if it does not exist, `binding_failed` if the issuer refuses or cannot be reached; a
    /// problem of the vault is the host's own error.
    pub async fn check_binding(&self, name: &BindingName) -> Result<(), Error> {
        let context = FailureContext::new(AuditId::mint());
        self.pipeline.broker.check(name).await.map_err(|refused| match refused {
            CredentialError::Binding(problem) => Failure::binding(&context, &problem).into(),
            CredentialError::Host(error) => error.into(),
        })
    }

    /// Waits, for a minute at most, until no renewal of a single-use refresh token is running, and until all events
    /// of calls are written to the audit log, as far as that is possible. Await it before the runtime is shut down
    /// or the process ends.
    ///
    /// Many issuers replace a refresh token with every use. A renewal therefore continues when the call that began
    /// it is over, cancelled or dropped. If it ended between the issuer's response and the write to the vault, the
    /// binding would be lost. The host remains usable while and after this is awaited.
    pub async fn flush(&self) {
        cofferdam_core::failpoint::pass("settle");
        self.pipeline.broker.flush().await;
        // An end that cannot be written is tried again with the next entry and when the host is dropped; a
        // warning was logged.
        self.pipeline.audit.flush().await;
    }

    /// Returns the installed connectors, by name and version.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn list(&self) -> Result<Vec<RegistryEntry>, HostError> {
        self.pipeline.loader.registry.list().map_err(HostError::from)
    }

    /// True if there are packages but no index, so that nothing counts as installed.
    /// [`rebuild_index`](Self::rebuild_index) fixes it.
    #[must_use]
    pub fn has_lost_its_index(&self) -> bool {
        self.pipeline.loader.registry.has_lost_its_index()
    }

    /// Removes an installed connector and its cached code. If it was the active version of its name and others are
    /// installed, the version that was active before becomes active, or else the highest one; it is returned. Both
    /// changes are recorded, and made also if the audit log cannot be written. It may block.
    ///
    /// # Errors
    /// It is not installed, or the package directory cannot be written.
    pub fn remove(&self, connector: &ConnectorRef) -> Result<Option<Version>, HostError> {
        let loader = &self.pipeline.loader;
        let digest = loader.find(connector)?;
        let (name, version) = (connector.name(), connector.version());
        let mut recorder = ChangeRecorder::new(&self.audit);
        recorder.intend(OperatorChange {
            action: OperatorAction::Remove,
            subject: connector.to_string(),
            before: Some(package_state(version, &digest, &[])),
            after: None,
            is_restriction: true,
        })?;
        let mut active = None;
        let removed = loader.registry.remove(name, version, |before, after| {
            active = Some(after.clone());
            // It follows from the removal, which must be possible with a full disk.
            recorder.intend(OperatorChange { is_restriction: true, ..activation(name, before, after) })
        });
        recorder.conclude(removed)?;
        loader.forget(&connector.to_string(), &digest);
        Ok(active)
    }

    /// Removes the cached code of a package that was checked and is not installed, so that packages which an author
    /// builds one after the other do not fill the cache. The code of an installed package stays. It may block.
    ///
    /// # Errors
    /// The index of packages cannot be read.
    pub fn discard_code(&self, package: &Digest) -> Result<(), HostError> {
        if !self.list()?.iter().any(|entry| entry.digest == *package) {
            self.pipeline.loader.sandbox.forget(package);
        }
        Ok(())
    }

    /// Verifies an installed connector as a call would, and compiles it if its code is not cached. Returns the keys
    /// whose signatures were accepted.
    ///
    /// # Errors
    /// The failure of a call to it.
    pub async fn verify(&self, connector: &ConnectorRef) -> Result<Vec<KeyId>, Error> {
        let key = connector.to_string();
        let context = FailureContext::new(AuditId::mint()).with_connector(key.as_str(), None);
        let loaded = self.pipeline.loader.load(&context, connector, &key, false).await?;
        Ok(loaded.checked.proof.signers().to_vec())
    }

    /// Rebuilds the index from the existing packages, and returns those that were skipped.
    ///
    /// # Errors
    /// The package directory cannot be read or written.
    pub fn rebuild_index(&self) -> Result<RebuiltIndex, HostError> {
        let loader = &self.pipeline.loader;
        loader.registry.rebuild_index(|bytes| loader.sandbox.open_blocking(bytes))
    }

    /// Resolves a reference as people write it: `name@version`, or a bare name, which resolves to its active version.
    ///
    /// # Errors
    /// The text matches no installed connector.
    pub fn resolve(&self, text: &str) -> Result<ConnectorRef, HostError> {
        if text.contains('@') {
            return ConnectorRef::parse(text);
        }
        let not_installed = || self.pipeline.loader.not_installed(text);
        let name = ConnectorName::parse(text).map_err(|_| not_installed())?;
        let active = self.pipeline.loader.registry.active(&name)?.ok_or_else(not_installed)?;
        Ok(ConnectorRef::new(name, active))
    }

    /// Refuses a connector that is not installed in this version.
    pub fn require_installed(&self, connector: &ConnectorRef) -> Result<(), HostError> {
        let same =
            |entry: &RegistryEntry| &entry.name == connector.name() && &entry.version == connector.version();
        match self.list()?.iter().any(same) {
            true => Ok(()),
            false => Err(self.pipeline.loader.not_installed(connector.text())),
        }
    }

    /// Returns the keyring that decides whose packages may run.
    #[must_use]
    pub fn keyring(&self) -> &KeyringFile {
        &self.pipeline.loader.keyring
    }
}
