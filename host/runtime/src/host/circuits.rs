//! The circuits of a host, as its operator sees and closes them.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::egress::HostPort;
use cofferdam_egress::resilience::{CircuitView, ResetView};
use cofferdam_model::manifest::ConnectorName;

use super::Host;

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

    /// Closes the circuits of `connector`, of all versions, at `host`; where one is not named, of all connectors, or
    /// at all hosts. Where neither is named, files that are damaged are removed, too.
    ///
    /// # Errors
    /// `circuits_unavailable`: they cannot be read or written.
    pub fn reset_circuits(
        &self,
        connector: Option<&ConnectorName>,
        host: Option<&HostPort>,
    ) -> Result<ResetView, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        let host = host.map(ToString::to_string);
        let reset = self.pipeline.circuits.reset(connector, host.as_deref(), now);
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
