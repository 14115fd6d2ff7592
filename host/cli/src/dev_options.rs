//! The options of development: local servers in place of services, and secrets for this process only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_dev::{DevHome, LocalNetwork, UpstreamMapping};
use cofferdam_egress::egress::SystemResolver;
use cofferdam_egress::vault::BindingName;
use cofferdam_model::manifest::CredentialKind;
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{Host, HostBuilder, NewBinding};

use super::commands::binding;
use super::report::CommandError;
use super::session::Session;
use super::{files, progress, runtime};

/// The options that exist in development only.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Development")]
pub(super) struct DevOptions {
    /// Lets a local server answer for a service, for this process only: the connector still asks for the real host over
    /// TLS, and every grant applies. May be given several times.
    #[arg(long, value_name = "HOST:PORT=URL")]
    upstream: Vec<UpstreamMapping>,

    /// Binds a secret for this process only: the file has it. `basic/jira=ada:@FILE` has the user name, too. For oauth2 and
    /// aws_sigv4 the file is a JSON object with all parts, as `cofferdam binding set --help` lists them. May be given
    /// several times.
    #[arg(long, value_name = "KIND/SERVICE=@FILE", value_parser = parse_secret)]
    bind: Vec<DevSecret>,
}

/// A binding, and the file with its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DevSecret {
    name: BindingName,
    username: Option<String>,
    file: PathBuf,
}

fn parse_secret(text: &str) -> Result<DevSecret, String> {
    let form = "write it as KIND/SERVICE=@FILE, like bearer/tickets=@token.txt";
    let (name, source) = text.split_once('=').ok_or(form)?;
    let name = BindingName::parse(name).map_err(|error| format!("{error}; {form}"))?;
    let (username, file) = match (name.kind(), source.split_once('@')) {
        (_, None) => return Err(format!("a secret is read from a file, never from an argument; {form}")),
        (CredentialKind::Basic, Some((user, file))) => match user.strip_suffix(':') {
            Some(user) if !user.is_empty() => (Some(user.to_owned()), file),
            _ => return Err("write a password as basic/SERVICE=USER:@FILE".to_owned()),
        },
        (_, Some(("", file))) => (None, file),
        _ => return Err(form.to_owned()),
    };
    match file.is_empty() {
        true => Err(form.to_owned()),
        false => Ok(DevSecret { name, username, file: PathBuf::from(file) }),
    }
}

impl DevOptions {
    /// Returns whether any of them was given.
    pub(super) fn is_given(&self) -> bool {
        !self.upstream.is_empty() || !self.bind.is_empty()
    }

    /// Starts the network in which the mapped services are local, and all other names are looked up as usual.
    pub(super) fn network(&self) -> Result<LocalNetwork, HostError> {
        let not_started = |error: &dyn std::fmt::Display| {
            HostError::new(HostErrorKind::Configuration, "The local services could not be started.")
                .with_hint("See that this process may listen on 127.0.0.1.")
                .with_source(error.to_string())
        };
        let network = LocalNetwork::isolated().map_err(|error| not_started(&error))?;
        let mut network = network.with_others(Arc::new(SystemResolver::default()));
        for mapping in &self.upstream {
            network.relay(mapping).map_err(|error| not_started(&error))?;
        }
        Ok(network)
    }

    /// Binds the secrets again, for what the installed connector asks now.
    pub(super) fn bind(&self, host: &Host, session: &Session<'_>) -> Result<(), CommandError> {
        for DevSecret { name, username, file } in &self.bind {
            if host.bindings()?.iter().any(|binding| binding.name == name.to_string()) {
                host.revoke_binding(name)?;
            }
            let material = binding::material_from_file(name, username.clone(), file, session)?;
            let (hosts, connectors) = binding::declared_grants(host, name).map_err(|error| {
                let fix = "Correct the name after --bind, or declare the credential in connector.toml: `kind` and `service` \
                           under [[capabilities.credential]].";
                error.map_message(|_| format!("The connector asks for no credential {name}.")).with_hint(fix)
            })?;
            host.bind(NewBinding { name: name.clone(), material, hosts, connectors })?;
        }
        Ok(())
    }

    /// Returns the mappings, for people.
    pub(super) fn mappings(&self) -> &[UpstreamMapping] {
        &self.upstream
    }
}

/// A package that runs without being installed, in a development home.
pub(super) struct DevPackage {
    pub(super) host: Host,
    pub(super) connector: ConnectorRef,
    _home: DevHome,
    _network: LocalNetwork,
}

impl DevPackage {
    /// Opens the package in `path` for calls by a host that `configured` configures.
    pub(super) fn open(
        path: &Path,
        options: &DevOptions,
        session: &Session<'_>,
        configured: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Result<Self, CommandError> {
        let package = session.parser()?.open_blocking(files::read_package(path)?)?;
        let key = path.canonicalize().map_err(|error| files::unreadable("The package", path, error))?;
        let home = DevHome::open(home_dir("call", &key)?)?;
        let network = options.network()?;
        let host = session.dev_host(&home, |builder| network.apply_to(configured(builder)))?;
        let installing = async { Ok(home.install(&host, &package).await?) };
        let what = format!("compiling {}", files::shown(path));
        let connector = runtime::block_on(progress::during(session.ui, &what, installing))?;
        options.bind(&host, session)?;
        Ok(Self { host, connector, _home: home, _network: network })
    }
}

/// Returns the error for options that exist in development only.
pub(super) fn only_in_development() -> HostError {
    HostError::new(HostErrorKind::Validation, "--upstream and --bind exist in development only.")
        .with_hint("Add --dev and name the file of a package, or use `cofferdam dev`.")
}

/// Returns the directory of the development home for `key`, a project's or a package's path: in the user's cache.
pub(super) fn home_dir(purpose: &str, key: &Path) -> Result<PathBuf, HostError> {
    use std::os::unix::ffi::OsStrExt as _;

    use etcetera::BaseStrategy as _;
    let base = etcetera::choose_base_strategy().map_err(|error| {
        HostError::new(HostErrorKind::Configuration, "The user has no home directory.")
            .with_hint("Set HOME or XDG_CACHE_HOME.")
            .with_source(error)
    })?;
    let digest = cofferdam_core::digest::Digest::sha256(key.as_os_str().as_bytes());
    Ok(base.cache_dir().join("cofferdam").join(purpose).join(digest.short()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_secret_is_named_with_its_file() {
        let secret = parse_secret("bearer/tickets=@token.txt").unwrap();
        assert_eq!((secret.name.to_string(), secret.username), ("bearer/tickets/default".to_owned(), None));
        assert_eq!(secret.file, Path::new("token.txt"));
        let secret = parse_secret("basic/jira/work=ada:@/run/pw").unwrap();
        assert_eq!((secret.username.as_deref(), &*secret.file), (Some("ada"), Path::new("/run/pw")));
        for (text, why) in [
            ("bearer/tickets", "write it as"),
            ("bearer/tickets=s3cret", "never from an argument"),
            ("bearer/tickets=@", "write it as"),
            ("bearer/tickets=x@file", "write it as"),
            ("basic/jira=@file", "USER:@FILE"),
            ("oauth2/x=id:@file", "write it as"),
            ("unknown/x=@file", "write it as"),
        ] {
            let error = parse_secret(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
