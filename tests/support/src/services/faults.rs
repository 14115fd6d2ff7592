//! mockttp: a server that breaks connections on purpose, behind an untrusted certificate.

use std::path::PathBuf;

use super::{Server, Tools};
use crate::package::repository;

/// A running server of faults: `/reset`, `/close`, `/hang`, and `/text` that works.
pub struct Faults {
    server: Server,
}

impl Faults {
    /// Starts it, with a new certificate authority.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(tools: &Tools) -> Self {
        let script: PathBuf = repository().join("tests/services/tools/faults.cjs");
        let args = |port: u16| [script.display().to_string(), port.to_string()].to_vec();
        Self { server: Server::start::<String>(tools, tools.python("node"), args, &[]) }
    }

    /// The process.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The certificate of its authority.
    ///
    /// # Panics
    /// It has not written it.
    #[must_use]
    pub fn authority_pem(&self) -> String {
        std::fs::read_to_string(self.server.file("authority.pem")).expect("the authority's certificate")
    }
}
