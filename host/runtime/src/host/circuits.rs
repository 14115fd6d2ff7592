//! The circuits of a host: the API with which its operator lists and closes them.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_egress::egress::HostPort;
use cofferdam_egress::resilience::{CircuitView, ResetView};
use cofferdam_model::manifest::ConnectorName;

use super::Host;

impl Host {
    /// Returns every circuit that is not closed or has counted failures, by connector and host. All others are
    /// closed.
    ///
    /// # Errors
    /// `circuits_unavailable`: they cannot be read.
    pub fn circuits(&self) -> Result<Vec<CircuitView>, HostError> {
        let now = self.pipeline.loader.clock.timestamp();
        self.pipeline.circuits.views(now).map_err(|error| unavailable("read", error))
    }

    /// Closes the circuits of `connector`, in all versions, at `host`. Without a connector, it closes those of all
    /// connectors, and without a host, those at all hosts. Without both, it also removes damaged files.
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
    .with_hint(
        "They are files in the directory `circuits` of the home directory, which its owner alone writes.",
    )
    .with_source(error)
}
