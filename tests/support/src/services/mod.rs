//! Real third-party servers on loopback, and the front that stands in for the services' addresses.
//!
//! `tests/services/tools/install.sh DIRECTORY` installs them, and `$COFFERDAM_SERVICES` names the directory.
//! Without it a test skips, visibly; if `$COFFERDAM_REQUIRE_SERVICES` is set, as in CI, that is a failure.

mod authority;
mod faults;
mod front;
mod moto;
mod nats;
mod oauth;
mod openapi;
mod plain;
mod postgres;
mod rotel;
mod server;

use std::path::{Path, PathBuf};

pub use authority::Authority;
pub use faults::Faults;
pub use front::{Front, Route};
pub use moto::Moto;
pub use nats::Nats;
pub use oauth::{OAuth, httpbin};
pub use openapi::{Description, described, openapi};
pub use plain::{Answer, ask};
pub use postgres::Postgres;
pub use rotel::rotel;
pub use server::Server;

/// The directory of the servers.
#[derive(Debug, Clone)]
pub struct Tools {
    dir: PathBuf,
}

impl Tools {
    /// The servers of this machine; else why there are none.
    ///
    /// # Errors
    /// `$COFFERDAM_SERVICES` is not set.
    ///
    /// # Panics
    /// It is set, and nothing is installed there.
    pub fn find() -> Result<Self, String> {
        let Some(dir) = std::env::var_os("COFFERDAM_SERVICES").map(PathBuf::from) else {
            return Err(
                "COFFERDAM_SERVICES is not set: tests/services/tools/install.sh DIRECTORY installs them"
                    .into(),
            );
        };
        let installed = dir.join("installed").is_file();
        assert!(installed, "COFFERDAM_SERVICES is {}, where install.sh has not finished", dir.display());
        Ok(Self { dir })
    }

    /// True if they are required.
    #[must_use]
    pub fn required() -> bool {
        std::env::var_os("COFFERDAM_REQUIRE_SERVICES").is_some_and(|value| !value.is_empty() && value != "0")
    }

    /// A program from PyPI, Node among them.
    #[must_use]
    pub fn python(&self, name: &str) -> PathBuf {
        self.dir.join("python/bin").join(name)
    }

    /// A program from npm.
    #[must_use]
    pub fn npm(&self, name: &str) -> PathBuf {
        self.dir.join("node_modules/.bin").join(name)
    }

    /// The folder of what npm installed.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
