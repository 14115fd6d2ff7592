//! An installed connector's package, verified and not compiled: what describes it to others.

use cofferdam_core::error::Error;
use cofferdam_core::failure::{AuditId, Context};
use cofferdam_model::package::Package;

use super::Host;
use crate::call::ConnectorRef;

impl Host {
    /// The package of an installed connector, without its bytes, verified as a call would and not compiled. Reads and
    /// hashes it: not for a thread that runs guests.
    ///
    /// # Errors
    /// It is not installed; or what a call of it would fail with.
    pub fn package(&self, connector: &ConnectorRef) -> Result<Package, Error> {
        let context = Context::new(AuditId::mint()).with_connector(connector.to_string(), None);
        self.pipeline.loader.read_verified(&context, connector)
    }
}
