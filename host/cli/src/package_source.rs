//! The package that a command names: a file, or one on a registry or a web server.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_distribution::{
    DistributionClient, DistributionSettings, FetchedPackage, PackageRef, ReferenceError, RemoteRef,
};
use cofferdam_egress::egress::{HostPort, PrivateGrant};
use cofferdam_model::trust::{self, Envelope, Keyring};
use jiff::Timestamp;
use zeroize::Zeroizing;

use super::commands::call;
use super::config_file::ConfigFile;
use super::progress::ProgressCounter;
use super::report::CommandError;
use super::session::{Session, read_roots, signature_path};
use super::{files, runtime};

/// The options of commands that fetch or publish packages.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Registries and web servers")]
pub(super) struct SourceOptions {
    /// Trusts the certificate authorities in this PEM file in addition to those of `config.toml`. A registry on loopback
    /// is then spoken to over TLS. May be given several times.
    #[arg(long, value_name = "FILE")]
    ca_file: Vec<PathBuf>,

    /// Speaks plain HTTP to this registry. Registries on loopback (localhost, 127.0.0.1, [::1]) need no permission. May be
    /// given several times.
    #[arg(long, value_name = "HOST:PORT")]
    plain_http: Vec<HostPort>,

    /// Lets the source, or a server that it leads to, have a private address. With `=RANGE` (an address, or a network like
    /// 10.20.0.0/16) only there. May be given several times.
    #[arg(long = "allow-private", value_name = "HOST:PORT[=RANGE]")]
    private: Vec<PrivateGrant>,

    /// The time for the whole exchange with the source.
    #[arg(long, value_name = "TIME", value_parser = call::time, default_value = "5m")]
    time_limit: Duration,
}

/// A package that was read or downloaded. Its signature is not verified.
#[derive(Debug)]
pub(super) struct SourcePackage {
    pub(super) bytes: Vec<u8>,
    pub(super) signature: Option<Vec<u8>>,
    /// The reference with the digest, which gets the same bytes or nothing; that of a web server as it was given. None
    /// for a file.
    pub(super) pinned: Option<RemoteRef>,
}

/// Returns the parser of an argument that names a package.
pub(super) fn package_ref() -> impl TypedValueParser<Value = PackageRef> {
    PathBufValueParser::new().try_map(|path| match path.to_str() {
        Some(text) => text.parse(),
        None => Ok(PackageRef::File(path)),
    })
}

/// Parses a reference that is one of several kinds of arguments.
pub(super) fn parse<T: FromStr<Err = ReferenceError>>(text: &str) -> Result<T, HostError> {
    text.parse().map_err(|error: ReferenceError| {
        HostError::new(HostErrorKind::Validation, format!("{}.", files::capitalised(&error.to_string())))
    })
}

/// Returns a package reference for messages.
pub(super) fn shown(package: &PackageRef) -> String {
    match package {
        PackageRef::File(path) => files::shown(path),
        PackageRef::Remote(reference) => reference.to_string(),
    }
}

impl SourceOptions {
    /// Reads or downloads a package, and its signature: from `signature`, or from where the package is.
    pub(super) fn load(
        &self,
        session: &Session<'_>,
        package: &PackageRef,
        signature: Option<&Path>,
    ) -> Result<SourcePackage, CommandError> {
        let given = signature.map(files::read_signature).transpose()?;
        match package {
            PackageRef::File(path) => {
                let bytes = files::read_package(path)?;
                let signature = match given {
                    Some(signature) => Some(signature),
                    None => files::read_if_there("The signature file", &signature_path(path))?,
                };
                Ok(SourcePackage { bytes, signature, pinned: None })
            }
            PackageRef::Remote(reference) => {
                let FetchedPackage { bytes, signature, pinned, .. } = self.fetch(session, reference)?;
                Ok(SourcePackage { bytes, signature: given.or(signature), pinned: Some(pinned) })
            }
        }
    }

    /// Downloads a package. If several signatures refer to it, one by a trusted key is preferred.
    pub(super) fn fetch(
        &self,
        session: &Session<'_>,
        reference: &RemoteRef,
    ) -> Result<FetchedPackage, CommandError> {
        let client = self.client(session)?;
        let keyring = session.keyring()?.load()?;
        let counter = Mutex::new(ProgressCounter::start(session.ui, &format!("bytes of {reference}")));
        let progress = |received, total| {
            counter.lock().unwrap_or_else(PoisonError::into_inner).update(received, total);
        };
        let accepts = |digest: &Digest, envelope: &[u8]| is_trusted(&keyring, digest, envelope);
        runtime::block_on(async { Ok(client.fetch(reference, &progress, &accepts).await?) })
    }

    /// Returns the options of a command that has none of them.
    pub(super) fn usual() -> Self {
        let time_limit = Duration::from_secs(300);
        Self { ca_file: Vec::new(), plain_http: Vec::new(), private: Vec::new(), time_limit }
    }

    /// Returns true if an option says how registries are reached.
    pub(super) fn has_registry_options(&self) -> bool {
        !(self.ca_file.is_empty() && self.plain_http.is_empty() && self.private.is_empty())
    }

    /// Returns the client of a server, without options of a command.
    pub(super) fn server_client(
        session: &Session<'_>,
        time_limit: Duration,
    ) -> Result<DistributionClient, HostError> {
        let (ca_file, plain_http, private) = (Vec::new(), Vec::new(), Vec::new());
        Self { ca_file, plain_http, private, time_limit }.client(session)
    }

    /// Returns a client with these options, those of `config.toml`, and the user's credentials.
    pub(super) fn client(&self, session: &Session<'_>) -> Result<DistributionClient, HostError> {
        let config = ConfigFile::load(&session.home()?)?;
        let mut settings = DistributionSettings::default().roots(config.roots);
        for entry in &config.allow_private {
            // The file's own check has refused others.
            if let Ok(grant) = PrivateGrant::parse(entry) {
                settings = settings.allow_private(grant);
            }
        }
        for path in &config.extra_roots {
            settings = settings.extra_root_pem(&read_roots(path)?)?;
        }
        for path in &self.ca_file {
            settings = settings.extra_root_pem(&read_authorities(path)?)?.tls_on_loopback();
        }
        for grant in &self.private {
            settings = settings.allow_private(grant.clone());
        }
        for host_port in config.plain_http.iter().chain(&self.plain_http) {
            settings = settings.plain_http(host_port.clone());
        }
        if let Some(path) = docker_config()
            && let Some(text) = files::read_if_there("The file with registry credentials", &path)?
        {
            settings = settings.docker_config(Zeroizing::new(text));
        }
        Ok(DistributionClient::new(settings.time_limit(self.time_limit)))
    }
}

/// Returns whether a trusted key signed that the package with this digest is a release.
fn is_trusted(keyring: &Keyring, digest: &Digest, envelope: &[u8]) -> bool {
    let statement = Envelope::parse(envelope).and_then(|envelope| envelope.unverified_statement());
    statement.is_ok_and(|statement| {
        let (name, version) = (statement.name(), statement.version());
        trust::verify(envelope, keyring, name, version, digest, Timestamp::now()).is_ok()
    })
}

fn read_authorities(path: &Path) -> Result<Vec<u8>, HostError> {
    let pem = files::read_authorities(path)?;
    cofferdam_egress::egress::roots_from_pem(&pem).map_err(|error| {
        let message = format!("{} has no certificates to trust: {error}.", files::shown(path));
        HostError::new(HostErrorKind::Validation, message).with_hint("Name a PEM file with --ca-file.")
    })?;
    Ok(pem)
}

/// Returns the path where container tools keep credentials of registries.
fn docker_config() -> Option<PathBuf> {
    let dir = match std::env::var_os("DOCKER_CONFIG").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME").filter(|home| !home.is_empty())?).join(".docker"),
    };
    Some(dir.join("config.json"))
}
