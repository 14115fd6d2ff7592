//! The circuits of a host, as its operator sees and closes them.

use super::Host;
use crate::error::{HostError, HostErrorKind};
use crate::manifest::ConnectorName;
use crate::resilience::CircuitView;

impl Host {
    /// Every circuit that is not closed, or has failures to remember, by connector and host. What is not there is
    /// closed.
    ///
    /// # Errors
    /// `circuits_unavailable`: they cannot be read.
    pub fn circuits(&self) -> Result<Vec<CircuitView>, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        self.pipeline.circuits.views(now).map_err(|error| unavailable("read", error))
    }

    /// Closes the circuits of `connector`, of all versions, at `host` (`host:port`); where one is not named, of
    /// all connectors, or at all hosts. Gives them as they were.
    ///
    /// # Errors
    /// `circuits_unavailable`: they cannot be read or written.
    pub fn reset_circuits(
        &self,
        connector: Option<&ConnectorName>,
        host: Option<&str>,
    ) -> Result<Vec<CircuitView>, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        let reset = self.pipeline.circuits.reset(connector, host, now);
        reset.map_err(|error| unavailable("changed", error))
    }
}

fn unavailable(what: &str, error: std::io::Error) -> HostError {
    HostError::new(
        HostErrorKind::CircuitsUnavailable,
        format!("The circuits cannot be {what}: {}.", error.kind()),
    )
    .hint("They are files in the directory `circuits` of the home directory, which its owner alone writes.")
    .because(error)
}
