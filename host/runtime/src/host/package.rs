//! Access to an installed connector's package, verified and not compiled.

use cofferdam_core::error::Error;
use cofferdam_core::failure::{AuditId, FailureContext};
use cofferdam_model::package::Package;

use super::Host;
use crate::call::ConnectorRef;

impl Host {
    /// Returns the package of an installed connector, without its bytes, verified as by a call and not compiled. It
    /// reads and hashes the file: not for a thread that runs guests.
    ///
    /// # Errors
    /// It is not installed; or the failure of a call to it.
    pub fn package(&self, connector: &ConnectorRef) -> Result<Package, Error> {
        let context = FailureContext::new(AuditId::mint()).with_connector(connector.to_string(), None);
        self.pipeline.loader.read_verified(&context, connector)
    }
}
