//! The active version of a connector: the one that its name alone stands for.

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

impl Host {
    /// Makes an installed version the active one of its name. Running calls end with the version that they began with, and
    /// whoever names a version keeps it. The change is recorded before it is made. It may block.
    ///
    /// # Errors
    /// `connector_not_found` if the version is not installed, `registry_unavailable` if the packages cannot be read or
    /// written, `audit_unavailable` if the change cannot be recorded.
    pub fn activate(&self, connector: &ConnectorRef) -> Result<Activated, HostError> {
        self.require_installed(connector)?;
        let before = self.pipeline.loader.registry.active(connector.name())?;
        self.switch(connector.name(), connector.version(), before)
    }

    /// Makes the version active again that was active before the present one. The change is recorded before it is made. It
    /// may block.
    ///
    /// # Errors
    /// `connector_not_found` if nothing is installed as `name`, `conflict` if no other version was active, and those of
    /// [`activate`](Self::activate).
    pub fn rollback(&self, name: &ConnectorName) -> Result<Activated, HostError> {
        let registry = &self.pipeline.loader.registry;
        let Some(active) = registry.active(name)? else {
            return Err(self.pipeline.loader.not_installed(&name.to_string()));
        };
        let Some(before) = registry.active_before(name)? else {
            let message = format!("No installed version of {name} was active before {active}.");
            return Err(HostError::new(HostErrorKind::Conflict, message).with_hint(
                "`cofferdam list` shows what is installed; `cofferdam use NAME@VERSION` makes a version active.",
            ));
        };
        self.switch(name, &before, Some(active))
    }

    fn switch(
        &self,
        name: &ConnectorName,
        version: &Version,
        before: Option<Version>,
    ) -> Result<Activated, HostError> {
        let replaces = before.filter(|before| before != version);
        if let Some(replaced) = &replaces {
            let mut recorder = ChangeRecorder::new(&self.audit);
            recorder.intend(activation(name, Some(replaced), Some(version)))?;
            recorder.conclude(self.pipeline.loader.registry.activate(name, version))?;
        }
        Ok(Activated {
            name: name.to_string(),
            version: version.to_string(),
            replaces: replaces.map(|version| version.to_string()),
        })
    }
}
