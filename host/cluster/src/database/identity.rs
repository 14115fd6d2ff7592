//! The identity of a cluster: the public key of its hosts' signatures, which is stored in its database.

use std::fmt;
use std::path::Path;

use cofferdam_audit::{NoteKey, NoteSigner};
use cofferdam_core::host_key::{self, HostKeyError};
use tokio_postgres::Client;

use super::{DatabaseError, DatabaseErrorKind};

/// The identity of a cluster. All its hosts have the same `host.key`, from which it follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterIdentity(NoteKey);

impl ClusterIdentity {
    /// Returns the identity of the cluster whose hosts have this key.
    #[must_use]
    pub fn of_host_key(host_key: &[u8; 32]) -> Self {
        Self(NoteSigner::new(host_key).key())
    }

    /// Reads it from the key in a home directory.
    pub(super) fn read(path: &Path) -> Result<Self, DatabaseError> {
        host_key::read(path).map(|key| Self::of_host_key(&key)).map_err(|error| unusable_key(&error))
    }

    /// Reads it as [`read`](Self::read) does; none if there is no key.
    pub(super) fn read_if_there(path: &Path) -> Result<Option<Self>, DatabaseError> {
        match host_key::read(path) {
            Ok(key) => Ok(Some(Self::of_host_key(&key))),
            Err(HostKeyError::Missing) => Ok(None),
            Err(HostKeyError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable_key(&error)),
        }
    }

    /// Makes a new key in a home directory, and returns its identity.
    pub(super) fn create(path: &Path) -> Result<Self, DatabaseError> {
        if let Some(home) = path.parent() {
            cofferdam_core::private_file::create_dir(home).map_err(|error| unusable_key(&error.into()))?;
        }
        let key = host_key::load_or_create(path).map_err(|error| unusable_key(&error))?;
        Ok(Self::of_host_key(&key))
    }

    /// Returns the eight digits by which people tell clusters apart.
    #[must_use]
    pub fn id(&self) -> String {
        self.0.id()
    }
}

impl fmt::Display for ClusterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Checks that the database is this cluster's.
pub(super) async fn check(client: &Client, own: &ClusterIdentity) -> Result<(), DatabaseError> {
    let row = client.query_opt("SELECT identity FROM cofferdam.cluster", &[]).await?;
    compare(row.map(|row| row.try_get(0)).transpose()?, own)
}

/// Compares the stored identity with that of this home.
pub(super) fn compare(stored: Option<String>, own: &ClusterIdentity) -> Result<(), DatabaseError> {
    let Some(stored) = stored else {
        let fix = "Restore it from a backup. Its tables are evidence: do not remove them.";
        let what = "the database has lost the identity of its cluster";
        return Err(DatabaseError::new(DatabaseErrorKind::Foreign, what, fix));
    };
    if stored == own.to_string() {
        return Ok(());
    }
    let other = NoteKey::parse(&stored).map(|key| key.id()).unwrap_or_default();
    let what = format!(
        "the database belongs to another cluster: its hosts sign as {other}, and this home's host.key signs as {}",
        own.id()
    );
    let fix = "Give each cluster a database of its own. If this host is to join the cluster, stop it, and copy host.key \
               from the home of one of its hosts.";
    Err(DatabaseError::new(DatabaseErrorKind::OtherCluster, what, fix))
}

/// The error for a home without a key, while the database belongs to a cluster.
pub(super) fn missing_key() -> DatabaseError {
    let fix = "Copy host.key from the home of one of its hosts, as a file of this user with mode 600.";
    let what = "the database belongs to a cluster, and this home has no host.key of it";
    DatabaseError::new(DatabaseErrorKind::Key, what, fix)
}

fn unusable_key(error: &HostKeyError) -> DatabaseError {
    let fix =
        "Copy host.key from the home of another host of the cluster, as a file of this user with mode 600.";
    DatabaseError::new(DatabaseErrorKind::Key, error, fix)
}
