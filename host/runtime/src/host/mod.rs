//! The public API: a builder, and a facade over everything a host can do.

mod actions;
mod audit;
mod binding_test;
mod binding_view;
mod bindings;
mod builder;
mod circuits;
mod export;
mod inspection;
mod install;
mod installation;
mod package;
mod recovery;
mod run_action;
mod why;

use std::sync::Arc;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::{AuditId, Context, Failure, safe_line};
use cofferdam_core::spelling;
use cofferdam_egress::credentials::Refused;
use cofferdam_egress::resilience::Profile;
use cofferdam_egress::vault::{BindingName, Vault};
use cofferdam_model::manifest::ConnectorName;
use cofferdam_model::registry::{Entry, Rebuilt};
use cofferdam_model::trust::KeyringFile;
use serde_json::Value;

pub use audit::unreadable;
pub use audit::{Audit, Proof, PutBack};
pub use binding_test::{BindingTest, TestAnswer};
pub use binding_view::{BindingInspection, BindingView, STALE_AFTER_DAYS, Verdict};
pub use bindings::{Asker, NewBinding};
pub use builder::CODE_CACHE_BYTES;
pub use builder::HostBuilder;
pub use export::{Exported, verify_export};
pub use inspection::{CredentialView, ImportView, Inspection, LimitView, OperationView, SignatureView};
pub use install::{InstallOptions, Installed};
pub use installation::{Ground, Installation};
pub use why::Access;

use crate::call::{Call, ConnectorRef, Pipeline, Report};
use crate::flow::actions::Shelf;

/// A host of connectors: cheap to clone, safe to share.
#[derive(Clone)]
pub struct Host {
    pipeline: Arc<Pipeline>,
    vault: Arc<dyn Vault>,
    audit: Audit,
    shelf: Shelf,
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
    /// [`Error::Failure`] is the outcome of a call that ran, or was not allowed to run; [`Error::Host`]
    /// says why a call could not be taken up (unknown operation, arguments of the wrong type).
    pub async fn call(&self, connector: &ConnectorRef, op: &str, args: Value) -> Result<Value, Error> {
        self.run(Call::new(connector.clone(), op, args)).await
    }

    /// Runs a call with its own limits and options.
    ///
    /// # Errors
    /// As [`Host::call`].
    pub async fn run(&self, call: Call) -> Result<Value, Error> {
        self.pipeline.run(call).await.0
    }

    /// Runs a call as [`Host::run`] does, and reports how it came to its outcome: every attempt with what it used,
    /// every wait, and who answered.
    pub async fn run_reported(&self, call: Call) -> (Result<Value, Error>, Report) {
        self.pipeline.run(call).await
    }

    /// The retry profile of this name: the operator's own, or a built-in one.
    ///
    /// # Errors
    /// `validation`: there is none, and which there are.
    pub fn profile(&self, name: &str) -> Result<Arc<Profile>, HostError> {
        let settings = &self.pipeline.settings;
        settings.profile(name).ok_or_else(|| {
            let names: Vec<_> = settings.profile_names().collect();
            let hint = match spelling::nearest(name, names.iter().copied()) {
                Some(near) => format!("Did you mean `{near}`? There are: {}", names.join(", ")),
                None => format!("There are: {}", names.join(", ")),
            };
            let message = format!("There is no retry profile `{}`.", safe_line(name, 100));
            HostError::new(HostErrorKind::Validation, message).hint(hint)
        })
    }

    /// The names of the retry profiles that there are: built-in ones, and the operator's own.
    pub fn profile_names(&self) -> impl Iterator<Item = &str> {
        self.pipeline.settings.profile_names()
    }

    /// Calls an operation with arguments that are JSON text, and returns its value as compact JSON text. The
    /// same as [`Host::call`] without a [`Value`] on either side: what to use for large arguments and results,
    /// and for what is only passed on.
    ///
    /// # Errors
    /// As [`Host::call`]; text that is not JSON, or that gives a field twice, is an argument that does not fit.
    pub async fn call_text(&self, connector: &ConnectorRef, op: &str, args: &str) -> Result<String, Error> {
        self.run_text(Call::from_text(connector.clone(), op, args)).await
    }

    /// Runs a call with its own limits and options, and returns its value as compact JSON text. How the
    /// arguments were given makes no difference.
    ///
    /// # Errors
    /// As [`Host::call_text`].
    pub async fn run_text(&self, call: Call) -> Result<String, Error> {
        self.pipeline.run(call).await.0
    }

    /// Runs a call as [`Host::run_text`] does, and reports how it came to its outcome.
    pub async fn run_text_reported(&self, call: Call) -> (Result<String, Error>, Report) {
        self.pipeline.run(call).await
    }

    /// Whether the binding can be used: it is there, and where it stands for tokens its issuer gives one. A token
    /// that is in date is not renewed.
    ///
    /// # Errors
    /// `binding_required` where nothing is bound, `binding_failed` where the issuer refuses or cannot be reached;
    /// the vault's own trouble is the host's.
    pub async fn check_binding(&self, name: &BindingName) -> Result<(), Error> {
        let context = Context::new(AuditId::mint());
        self.pipeline.broker.check(name).await.map_err(|refused| match refused {
            Refused::Binding(problem) => Failure::binding(&context, &problem).into(),
            Refused::Host(error) => error.into(),
        })
    }

    /// Waits until no credential is being renewed that can be renewed once only, a minute at most; and until all that
    /// is known of calls is on record, as far as it can be written. Await it before the runtime is shut down or the
    /// process ends.
    ///
    /// Many issuers replace a refresh token with every use of it. A renewal therefore goes on when the call that
    /// began it is over, cancelled or dropped; ending it between the issuer's answer and the write to the vault
    /// loses the binding. A host can be used as before while and after this is awaited.
    pub async fn settle(&self) {
        cofferdam_core::failpoint::pass("settle");
        self.pipeline.broker.settle().await;
        // What was given to the record is tried whoever waits for it; what it could not write it has said.
        self.pipeline.recording.flushed().await;
    }

    /// What is installed, by name and version.
    ///
    /// # Errors
    /// The index cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>, HostError> {
        self.pipeline.loader.registry.list().map_err(HostError::from)
    }

    /// Whether packages are there and the index is not, so that nothing counts as installed:
    /// [`rebuild_index`](Self::rebuild_index) helps.
    #[must_use]
    pub fn has_lost_its_index(&self) -> bool {
        self.pipeline.loader.registry.has_lost_its_index()
    }

    /// Removes an installed connector and the code kept of it.
    ///
    /// # Errors
    /// It is not installed, or the package directory cannot be written.
    pub fn remove(&self, connector: &ConnectorRef) -> Result<(), HostError> {
        let loader = &self.pipeline.loader;
        let digest = loader.find(connector)?;
        loader.registry.remove(connector.name(), connector.version())?;
        loader.forget(&connector.to_string(), &digest);
        Ok(())
    }

    /// Verifies an installed connector as a call would, and compiles it if no code is kept.
    ///
    /// # Errors
    /// What a call of it would fail with.
    pub async fn verify(&self, connector: &ConnectorRef) -> Result<(), Error> {
        let key = connector.to_string();
        let context = Context::new(AuditId::mint()).with_connector(key.as_str(), None);
        self.pipeline.loader.load(&context, connector, &key, false).await.map(drop)
    }

    /// Makes the index anew from the packages that are there, and says which were left out.
    ///
    /// # Errors
    /// The package directory cannot be read or written.
    pub fn rebuild_index(&self) -> Result<Rebuilt, HostError> {
        let loader = &self.pipeline.loader;
        loader.registry.rebuild_index(|bytes| loader.sandbox.open_blocking(bytes))
    }

    /// Reads a reference as people write it: `name@version`, or a bare name of which exactly one version
    /// is installed. There is no "latest": with several versions installed one has to be named.
    ///
    /// # Errors
    /// The text names nothing, nothing that is installed, or several.
    pub fn resolve(&self, text: &str) -> Result<ConnectorRef, HostError> {
        if text.contains('@') {
            return ConnectorRef::parse(text);
        }
        let Ok(name) = ConnectorName::parse(text) else {
            return Err(self.pipeline.loader.not_installed(text));
        };
        let mut versions = self.list()?.into_iter().filter(|entry| entry.name == name);
        match (versions.next(), versions.next()) {
            (Some(only), None) => Ok(ConnectorRef::new(only.name, only.version)),
            (None, _) => Err(self.pipeline.loader.not_installed(text)),
            (Some(_), Some(_)) => {
                let versions = self.list()?.into_iter().filter(|entry| entry.name == name);
                let names: Vec<_> = versions.map(|entry| format!("{name}@{}", entry.version)).collect();
                Err(HostError::new(
                    HostErrorKind::Validation,
                    format!("Several versions of {name} are installed."),
                )
                .hint(format!("Name one: {}", names.join(", "))))
            }
        }
    }

    /// Refuses a connector that is not installed in this version.
    pub fn require_installed(&self, connector: &ConnectorRef) -> Result<(), HostError> {
        let same = |entry: &Entry| &entry.name == connector.name() && &entry.version == connector.version();
        match self.list()?.iter().any(same) {
            true => Ok(()),
            false => Err(self.pipeline.loader.not_installed(connector.text())),
        }
    }

    /// The keyring that decides whose packages run.
    #[must_use]
    pub fn keyring(&self) -> &KeyringFile {
        &self.pipeline.loader.keyring
    }
}
