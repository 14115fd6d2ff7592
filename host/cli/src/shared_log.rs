//! The audit log that several hosts share, if the settings name one.

use std::path::Path;
use std::sync::Arc;

use cofferdam_audit::AuditLog;
use cofferdam_audit::approvals::ApprovalStore;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_runtime::host::SharedState;

use super::config_file::{self, ConfigFile, DatabaseUrl};

/// The variable with the URL of the database, in the place of that in the file.
const URL: &str = "COFFERDAM_AUDIT_URL";

/// The log that several hosts share, and their approvals.
pub(super) type SharedLog = (Arc<dyn AuditLog>, Arc<dyn ApprovalStore>);

/// Returns the URL, and true if it is from the file.
fn url(settings: &ConfigFile) -> Result<Option<(DatabaseUrl, bool)>, HostError> {
    match std::env::var(URL) {
        Ok(url) if !url.is_empty() => Ok(Some((DatabaseUrl::new(url), false))),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(HostError::new(HostErrorKind::Configuration, format!("{URL} is no UTF-8 text."))
                .with_hint("Percent-encode the URL."))
        }
        _ => Ok(settings.audit.url.clone().map(|url| (url, true))),
    }
}

/// Returns the audit log in a database; none if it is in the home directory.
#[cfg(not(feature = "cluster"))]
pub(super) fn from_settings(_home: &Path, settings: &ConfigFile) -> Result<Option<SharedLog>, HostError> {
    let Some((_, is_from_file)) = url(settings)? else { return Ok(None) };
    let place = if is_from_file { format!("`[audit] url` in {}", config_file::FILE) } else { URL.to_owned() };
    let message = format!("{place} names a database, and this program was built without many hosts.");
    Err(HostError::new(HostErrorKind::Configuration, message).with_hint(
        "Build it with the feature `cluster`, or remove the setting to have the audit log in the home.",
    ))
}

/// Returns the state that is shared with the other hosts; none if the settings name no database.
#[cfg(not(feature = "cluster"))]
pub(super) fn shared_state(_home: &Path, _settings: &ConfigFile) -> Result<Option<SharedState>, HostError> {
    Ok(None)
}

#[cfg(feature = "cluster")]
pub(super) use database::{from_settings, shared_state};

#[cfg(feature = "cluster")]
mod database {
    use cofferdam_audit::{LogSettings, SealedQuota};
    use cofferdam_cluster::audit_log::{PostgresLog, PostgresSettings};
    use cofferdam_cluster::database::{Database, DatabaseError, DatabaseErrorKind, DatabaseSettings};
    use cofferdam_core::clock::SystemClock;
    use cofferdam_core::private_file::{self, FilePolicy};
    use cofferdam_egress::egress::{Tls, roots_from_pem};
    use zeroize::Zeroizing;

    use super::super::{files, session};
    use super::{Arc, ConfigFile, HostError, HostErrorKind, Path, SharedLog, SharedState, config_file, url};

    /// The variable with the password of the database.
    const PASSWORD: &str = "COFFERDAM_AUDIT_PASSWORD";

    /// Returns the audit log in a database; none if it is in the home directory.
    pub(in super::super) fn from_settings(
        home: &Path,
        settings: &ConfigFile,
    ) -> Result<Option<SharedLog>, HostError> {
        let Some(database) = shared_database(home, settings)? else { return Ok(None) };
        let audit = &settings.audit;
        let host = settings.cluster.host.clone().unwrap_or_else(|| "localhost".to_owned());
        let standard = SealedQuota::default();
        let mut own = PostgresSettings::new(&host);
        own.log = LogSettings {
            retention: audit.retention,
            sealed: SealedQuota {
                per_client: audit.sealed_size_per_client.unwrap_or(standard.per_client),
                in_all: audit.sealed_size.unwrap_or(standard.in_all),
            },
            ..LogSettings::default()
        };
        own.lease = settings.cluster.lease.unwrap_or(own.lease);
        let log = Arc::new(PostgresLog::new(database, home, own, Arc::new(SystemClock)));
        Ok(Some((Arc::<PostgresLog>::clone(&log), log)))
    }

    /// Returns the state that is shared with the other hosts; none if the settings name no database.
    pub(in super::super) fn shared_state(
        home: &Path,
        settings: &ConfigFile,
    ) -> Result<Option<SharedState>, HostError> {
        let Some(database) = shared_database(home, settings)? else { return Ok(None) };
        Ok(Some(cofferdam_cluster::shared_state::start(&database, home)?))
    }

    /// Returns the database of the cluster; none if the settings name none.
    pub(in super::super) fn shared_database(
        home: &Path,
        settings: &ConfigFile,
    ) -> Result<Option<Database>, HostError> {
        let Some((url, is_from_file)) = url(settings)? else { return Ok(None) };
        let plain_text = settings.audit.plain_text.unwrap_or(false);
        let mut own = DatabaseSettings::parse(url.expose(), plain_text)?;
        if is_from_file && own.has_url_password() {
            let path = home.join(config_file::FILE);
            private_file::check(&path, &FilePolicy::secret(u64::MAX)).map_err(|error| {
                let message = format!("{} has a password in it, and {error}.", files::shown(&path));
                let hint = "Make it this user's alone (chmod 600), or write the password to a file of its own, and name \
                            that by `[audit] password_file`.";
                HostError::new(HostErrorKind::Configuration, message).with_hint(hint)
            })?;
        }
        if let Some(password) = password_in_environment()? {
            own = own.password(&password);
        } else if let Some(path) = settings.audit.password_file.clone() {
            own = own.password_from(Arc::new(move || {
                let text = files::read_private("The password of the database", &path).map_err(|error| {
                    let (what, fix) =
                        (error.message().trim_end_matches('.'), error.hint().unwrap_or_default());
                    DatabaseError::new(DatabaseErrorKind::Settings, what, fix)
                })?;
                Ok(Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned()))
            }));
        }
        let mut roots = Vec::new();
        for path in &settings.extra_roots {
            roots.extend(roots_from_pem(&session::read_roots(path)?).unwrap_or_default());
        }
        let tls = Tls::new(settings.roots, roots).map_err(|error| {
            let message = format!("An extra root cannot be used: {error}.");
            HostError::new(HostErrorKind::Configuration, message)
                .with_hint(format!("Correct extra_roots in {}.", config_file::FILE))
        })?;
        Ok(Some(Database::new(own, tls, home)))
    }

    /// Returns the password in the environment.
    fn password_in_environment() -> Result<Option<Zeroizing<String>>, HostError> {
        match std::env::var(PASSWORD) {
            Ok(password) if !password.is_empty() => Ok(Some(Zeroizing::new(password))),
            Err(std::env::VarError::NotUnicode(_)) => {
                let message = format!("{PASSWORD} is no UTF-8 text.");
                Err(HostError::new(HostErrorKind::Configuration, message)
                    .with_hint("Write the password to a file, and name it by `[audit] password_file`."))
            }
            _ => Ok(None),
        }
    }
}
