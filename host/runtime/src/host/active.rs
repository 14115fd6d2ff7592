//! The active version of a connector, to which its name without a version resolves.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::manifest::ConnectorName;
use semver::Version;
use serde::Serialize;

use super::Host;
use super::operator::{ChangeRecorder, activation};
use crate::call::ConnectorRef;

/// The result of a change of the active version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Activated {
    /// The connector's name.
    pub name: String,
    /// The version that is active now.
    pub version: String,
    /// The version that was active before. None if it is the same.
    pub replaces: Option<String>,
}

impl Activated {
    fn new(name: &ConnectorName, version: &Version, replaces: Option<Version>) -> Self {
        let replaces = replaces.map(|version| version.to_string());
        Self { name: name.to_string(), version: version.to_string(), replaces }
    }
}

impl Host {
    /// Makes an installed version the active one of its name. Running calls end with the version that they began with, and
    /// references with a version are not affected. The change is recorded before it is made. It may block.
    ///
    /// # Errors
    /// `connector_not_found` if the version is not installed, `registry_unavailable` if the packages cannot be read or
    /// written, `audit_unavailable` if the change cannot be recorded.
    pub fn activate(&self, connector: &ConnectorRef) -> Result<Activated, HostError> {
        self.require_installed(connector)?;
        let (name, version) = (connector.name(), connector.version());
        let mut recorder = ChangeRecorder::new(&self.audit);
        let replaced = self
            .pipeline
            .loader
            .registry
            .activate(name, version, |before, after| recorder.intend(activation(name, before, after)));
        Ok(Activated::new(name, version, recorder.conclude(replaced)?))
    }

    /// Makes the version active again that was active before the present one. The change is recorded before it is made. It
    /// may block.
    ///
    /// # Errors
    /// `connector_not_found` if nothing is installed as `name`, `conflict` if no other version was active, and those of
    /// [`activate`](Self::activate).
    pub fn rollback(&self, name: &ConnectorName) -> Result<Activated, HostError> {
        let loader = &self.pipeline.loader;
        let mut recorder = ChangeRecorder::new(&self.audit);
        let switched =
            loader.registry.rollback(name, |before, after| recorder.intend(activation(name, before, after)));
        match recorder.conclude(switched)? {
            Some((replaced, version)) => Ok(Activated::new(name, &version, Some(replaced))),
            None if loader.registry.active(name)?.is_none() => Err(loader.not_installed(&name.to_string())),
            None => {
                let message =
                    format!("No other installed version of {name} was active before the present one.");
                Err(HostError::new(HostErrorKind::Conflict, message).with_hint(
                    "`cofferdam list` shows what is installed; `cofferdam use NAME@VERSION` makes a version active.",
                ))
            }
        }
    }
}
