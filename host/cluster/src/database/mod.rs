//! The PostgreSQL database of a cluster: connections to it, its tables, and the cluster that it belongs to.
//!
//! A connection is usable only after its checks: the server writes, the role is no superuser, the tables are those of this
//! program and of this cluster. Tables are made and changed under an advisory lock, by whichever host comes first.

mod checks;
mod error;
mod identity;
mod migrations;
mod pool;
mod settings;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cofferdam_egress::egress::Tls;
use tokio_postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

pub use error::{DatabaseError, DatabaseErrorKind};
pub use identity::ClusterIdentity;
pub(crate) use migrations::SCHEMA_LOCK;
pub use pool::{Pool, PooledClient};
pub use settings::{DatabaseSettings, PasswordSource};

/// The maximum time for a connection and its checks, migrations of another host included.
const OPENING_TIME: Duration = Duration::from_secs(20);

/// The settings of each session. Neither the role's nor the database's defaults change what is durable.
const SESSION: &str = "SET search_path = cofferdam, pg_catalog; SET synchronous_commit = on; \
                       SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET TimeZone = 'UTC'; \
                       SET default_transaction_isolation = 'read committed'; SET lock_timeout = '10s'; \
                       SET idle_in_transaction_session_timeout = '30s'";

/// The database of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Database(Arc<DatabaseInner>);

struct DatabaseInner {
    settings: DatabaseSettings,
    tls: Arc<Tls>,
    host_key: PathBuf,
    /// True once this process has seen that the tables are there and are this cluster's.
    is_prepared: AtomicBool,
}

/// The task that carries a connection's traffic.
type Traffic = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

impl Database {
    /// Creates a database with these settings, which connects with the certificate authorities of `tls`. Nothing is
    /// connected before it is used. `home` is the home directory, whose `host.key` tells clusters apart.
    #[must_use]
    pub fn new(settings: DatabaseSettings, tls: Arc<Tls>, home: &Path) -> Self {
        let host_key = home.join("host.key");
        Self(Arc::new(DatabaseInner { settings, tls, host_key, is_prepared: AtomicBool::new(false) }))
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &DatabaseSettings {
        &self.0.settings
    }

    /// Returns the identity of the cluster, according to the key of this home.
    ///
    /// # Errors
    /// `host.key` is missing or cannot be used.
    pub fn identity(&self) -> Result<ClusterIdentity, DatabaseError> {
        ClusterIdentity::read(&self.0.host_key)
    }

    /// Opens a session, whose traffic a task of the current runtime carries. The tables are made, or brought up to this
    /// version, if that was not done before.
    ///
    /// # Errors
    /// The database cannot be reached, or is not fit to be used.
    pub async fn connect(&self) -> Result<Client, DatabaseError> {
        let opened = tokio::time::timeout(OPENING_TIME, self.open()).await;
        opened.unwrap_or_else(|_| {
            Err(DatabaseError::unreachable(&self.0.settings, "it does not answer in time"))
        })
    }

    async fn open(&self) -> Result<Client, DatabaseError> {
        let DatabaseInner { settings, tls, host_key, is_prepared } = &*self.0;
        let (mut client, traffic) = establish(settings, tls).await?;
        tokio::spawn(async move {
            // Whoever uses the connection gets the error, too.
            if let Err(error) = traffic.await {
                tracing::debug!(target: "cofferdam::database", %error, "a connection to the database ended");
            }
        });
        client.batch_execute(SESSION).await.map_err(|error| DatabaseError::from_sql(&error))?;
        let session = checks::check_session(&client, settings).await?;
        match session.has_tables && is_prepared.load(Ordering::Acquire) {
            // Another database may have taken the place of this one meanwhile.
            true => identity::check(&client, &ClusterIdentity::read(host_key)?).await?,
            false => {
                migrations::prepare(&mut client, settings, host_key).await?;
                is_prepared.store(true, Ordering::Release);
            }
        }
        Ok(client)
    }
}

async fn establish(settings: &DatabaseSettings, tls: &Tls) -> Result<(Client, Traffic), DatabaseError> {
    let failed = |error: tokio_postgres::Error| DatabaseError::from_connecting(settings, &error);
    let config = settings.config_now()?;
    if !settings.has_tls() {
        let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
        return Ok((client, Box::pin(connection)));
    }
    let client = tls.client_config().await.ok_or_else(|| DatabaseError::without_roots(settings))?;
    let (client, connection) = config.connect(MakeRustlsConnect::new(client)).await.map_err(failed)?;
    Ok((client, Box::pin(connection)))
}
