//! The context of a command: the streams, the home directory, and the host in it.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_audit::SealedQuota;
use cofferdam_core::confine::{ProcessRole, ServerFiles, ThreadCoverage, confine};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::secret::Secret;
use cofferdam_dev::DevHome;
use cofferdam_distribution::PackageRef;
use cofferdam_egress::vault::{VaultError, VaultFile};
use cofferdam_model::trust::{Keyring, KeyringFile};
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{Host, HostBuilder, keyring_changes};
pub(crate) use cofferdam_sandbox::{CompileLimits, Compiler, PackageParser};
use etcetera::BaseStrategy as _;
use jiff::Timestamp;

use super::args::GlobalArgs;
use super::cluster_trust::{self, TrustWatch};
use super::config_file::{self, ConfigFile};
use super::files;
use super::package_source::SourceOptions;
use super::passphrase;
use super::process_user::ProcessUser;
use super::shared_log;
use super::ui::Ui;
use super::vault_config::HomeVault;

/// Calls at once: a command makes one.
const CONCURRENCY: u32 = 4;

/// Variables that name certificates in the place of the system's.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// A command's surroundings. Nothing is looked up before a command needs it.
#[derive(Debug)]
pub(super) struct Session<'u> {
    pub(super) ui: &'u Ui,
    home: Option<PathBuf>,
    passphrase_file: Option<PathBuf>,
    /// True if servers and the compile worker confine themselves.
    confined: bool,
}

impl<'u> Session<'u> {
    pub(super) fn new(ui: &'u Ui, globals: GlobalArgs) -> Self {
        let GlobalArgs { home, passphrase_file, no_confine, .. } = globals;
        Self { ui, home, passphrase_file, confined: !no_confine }
    }

    /// The home directory; it need not exist.
    pub(super) fn home(&self) -> Result<PathBuf, HostError> {
        let home = match &self.home {
            Some(home) => home.clone(),
            None => default_home()?,
        };
        if home.exists() && !home.is_dir() {
            let message = format!("The home directory {} is not a directory.", files::shown(&home));
            let hint = "Name another one with --home or COFFERDAM_HOME.";
            return Err(HostError::new(HostErrorKind::Configuration, message).with_hint(hint));
        }
        std::path::absolute(&home).map_err(|error| files::unreadable("The home directory", &home, error))
    }

    /// Changes the keyring in the home directory, and records that. A change that only takes permissions away is made
    /// also if no host can be configured to record it.
    pub(super) fn change_keyring<T>(
        &self,
        change: impl FnOnce(&mut Keyring) -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let unrecorded = match self.host() {
            Ok(host) => return host.change_keyring(change),
            Err(error) => error,
        };
        self.keyring()?.update(|keyring| {
            let before = keyring.clone();
            let done = change(keyring)?;
            let changes = keyring_changes(&before, keyring, Timestamp::now());
            if changes.iter().any(|change| !change.is_restriction) {
                return Err(unrecorded);
            }
            if !changes.is_empty() {
                self.ui.warn(&format!("the change is not in the audit log: {unrecorded}"));
            }
            Ok(done)
        })
    }

    /// The keyring in the home directory.
    pub(super) fn keyring(&self) -> Result<KeyringFile, HostError> {
        Ok(KeyringFile::new(self.home()?.join("keyring.toml")))
    }

    /// Returns the parser for unknown packages, without a host.
    pub(super) fn parser(&self) -> Result<PackageParser, HostError> {
        PackageParser::new(self.compiler()?, CompileLimits::default())
    }

    /// This very program compiles, as a child process.
    pub(super) fn compiler(&self) -> Result<Compiler, HostError> {
        let compiler = Compiler::child(program()?);
        Ok(if self.confined { compiler } else { compiler.without_confinement() })
    }

    /// The host in the home directory, as `config.toml` has it.
    pub(super) fn host(&self) -> Result<Host, HostError> {
        self.host_with(|builder| builder)
    }

    /// The host in the home directory, with what a command adds.
    pub(super) fn host_with(&self, add: impl FnOnce(HostBuilder) -> HostBuilder) -> Result<Host, HostError> {
        self.host_and_vault_with(ConfigFile::load(&self.home()?)?, &ProcessUser::look_up(), add)
            .map(|(host, _)| host)
    }

    /// The host in a development home. Nothing of `config.toml` applies to it.
    pub(super) fn dev_host(
        &self,
        home: &DevHome,
        add: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Result<Host, HostError> {
        let user = ProcessUser::look_up();
        let compiler = self.compiler()?.debugging_guests();
        let builder = home.builder().compiler(compiler).concurrency(CONCURRENCY);
        add(builder.actor(&user.actor()).user(&user.description())).build()
    }

    /// The host of a server, with what its command adds. The process is confined before it opens its home.
    pub(super) fn serving_host_with(
        &self,
        add: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Result<Host, HostError> {
        let settings = ConfigFile::load(&self.home()?)?;
        // Read while the list of users is in reach.
        let user = ProcessUser::look_up();
        if self.confined {
            let walls = confine(&self.server_role(&settings)?, ThreadCoverage::Process);
            if !walls.holds() {
                self.ui
                    .note("This system does not confine the server in full; see `cofferdam inspect --host`.");
            }
        }
        let (host, _) = self.host_and_vault_with(settings, &user, add)?;
        if let Err(error) = host.audit().check_complete() {
            self.ui.warn(&format!(
                "{} Calls under idempotency keys are refused. {}",
                error.message(),
                error.hint().unwrap_or_default()
            ));
        }
        Ok(host)
    }

    /// Returns the watch of the cluster's trust, if one is configured. To be made before the process confines itself, since
    /// it reads the credentials of registries.
    pub(super) fn trust_watch(&self) -> Result<Option<TrustWatch>, HostError> {
        let home = self.home()?;
        let Some(trust) = ConfigFile::load(&home)?.cluster.trust else { return Ok(None) };
        let client = SourceOptions::server_client(self, cluster_trust::TIME_LIMIT)?;
        Ok(Some(TrustWatch::new((*trust).clone(), client, home)))
    }

    /// Returns whether servers and the compile worker confine themselves.
    pub(super) fn is_confined(&self) -> bool {
        self.confined
    }

    /// The files that a server in this home keeps.
    pub(super) fn server_role(&self, settings: &ConfigFile) -> Result<ProcessRole, HostError> {
        let home = self.home()?;
        // The rules are for what exists: a home that is made later would be out of reach.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&home);
        made.map_err(|error| files::unwritable(&home, error))?;
        let passphrase = self.passphrase_file.iter();
        let vault = settings.vault.readable();
        // A certificate variable may name several directories, as PATH does.
        let certificates = CERTIFICATES.iter().filter_map(std::env::var_os).flat_map(|value| {
            std::env::split_paths(&value).filter(|path| path.is_absolute()).collect::<Vec<_>>()
        });
        let password = settings.audit.password_file.iter();
        let configured = settings.extra_roots.iter().chain(passphrase).chain(&vault).chain(password).cloned();
        let configured = configured.chain(certificates).collect();
        let runnable = settings.vault.runnable();
        Ok(ProcessRole::Server(ServerFiles { compiler: program()?, configured, runnable, home }))
    }

    /// The host, and the vault that it has its bindings from.
    pub(super) fn host_and_vault(&self) -> Result<(Host, HomeVault), HostError> {
        self.host_and_vault_with(ConfigFile::load(&self.home()?)?, &ProcessUser::look_up(), |builder| builder)
    }

    fn host_and_vault_with(
        &self,
        settings: ConfigFile,
        user: &ProcessUser,
        add: impl FnOnce(HostBuilder) -> HostBuilder,
    ) -> Result<(Host, HomeVault), HostError> {
        let home = self.home()?;
        let shared_log = shared_log::from_settings(&home, &settings)?;
        let shared_state = shared_log::shared_state(&home, &settings)?;
        let mut builder = Host::builder().home(&home).compiler(self.compiler()?).concurrency(CONCURRENCY);
        for host_port in settings.allow_private {
            builder = builder.allow_private(host_port);
        }
        builder =
            builder.roots(settings.roots).resilience(settings.resilience).approval_policy(settings.approvals);
        for path in settings.extra_roots {
            builder = builder.extra_root_pem(read_roots(&path)?);
        }
        if let Some(bytes) = settings.cache_size {
            builder = builder.code_cache_size(bytes);
        }
        builder =
            with_audit_settings(builder, &settings.audit).actor(&user.actor()).user(&user.description());
        if let Some((log, approvals)) = shared_log {
            builder = builder.audit_log(log).approval_store(approvals);
        }
        if let Some(shared) = shared_state {
            builder = builder.shared_state(shared);
        }
        let vault = settings.vault.open(|key_file| self.vault(&home, key_file))?;
        Ok((add(builder.vault(vault.shared())).build()?, vault))
    }

    /// Returns the vault file, without reading it or prompting.
    fn vault(&self, home: &Path, key_file: Option<PathBuf>) -> Result<VaultFile, HostError> {
        let mut vault = VaultFile::new(home.join("vault")).passphrase_prompt(passphrase::prompting_source());
        if let Some(path) = key_file {
            vault = vault.key_file(path);
        }
        if let Some(path) = self.passphrase_file.clone() {
            let read = move |_| match passphrase::from_file(&path) {
                Ok(passphrase) => Ok(Arc::new(passphrase)),
                Err(error) => Err(VaultError::Locked {
                    message: error.message().to_owned(),
                    hint: error.hint().unwrap_or_default().to_owned(),
                }),
            };
            vault = vault.passphrase_from(Arc::new(read));
        } else if let Some(passphrase) = passphrase::from_environment()? {
            vault = vault.passphrase(passphrase);
        }
        Ok(vault)
    }

    /// The file with the passphrase, where one was named.
    pub(super) fn passphrase_file(&self) -> Option<&Path> {
        self.passphrase_file.as_deref()
    }

    /// The passphrase that was given for this command, if one was.
    pub(super) fn supplied_passphrase(&self) -> Result<Option<Secret>, HostError> {
        match &self.passphrase_file {
            Some(path) => passphrase::from_file(path).map(Some),
            None => passphrase::from_environment(),
        }
    }
}

/// A host that records calls as `config.toml` says.
fn with_audit_settings(mut builder: HostBuilder, audit: &config_file::AuditConfig) -> HostBuilder {
    if let Some(durability) = audit.durability {
        builder = builder.durability(durability);
    }
    if let Some(keep) = audit.results {
        builder = builder.keep_results(keep);
    }
    if let Some(retention) = audit.retention {
        builder = builder.retention(retention);
    }
    if let Some(ttl) = audit.key_ttl {
        builder = builder.key_ttl(ttl);
    }
    let standard = SealedQuota::default();
    builder = builder.sealed_quota(SealedQuota {
        per_client: audit.sealed_size_per_client.unwrap_or(standard.per_client),
        in_all: audit.sealed_size.unwrap_or(standard.in_all),
    });
    if let Some(bytes) = audit.field_bytes {
        builder = builder.field_bytes(bytes);
    }
    builder
}

/// Reads certificate authorities, and refuses what are none while the file's name is known.
pub(super) fn read_roots(path: &Path) -> Result<Vec<u8>, HostError> {
    let pem = files::read_authorities(path)?;
    match cofferdam_egress::egress::roots_from_pem(&pem) {
        Ok(_) => Ok(pem),
        Err(error) => {
            let message = format!("{} has no certificates to trust: {error}.", files::shown(path));
            let hint = format!("Correct extra_roots in {}: it names PEM files.", config_file::FILE);
            Err(HostError::new(HostErrorKind::Configuration, message).with_hint(hint))
        }
    }
}

/// The path of this very program, which compiles as a child process.
fn program() -> Result<PathBuf, HostError> {
    std::env::current_exe().map_err(|error| {
        HostError::new(HostErrorKind::Configuration, "The path of this program cannot be found out.")
            .with_hint("Start cofferdam by its path.")
            .with_source(error)
    })
}

fn default_home() -> Result<PathBuf, HostError> {
    let data = etcetera::choose_base_strategy().map(|strategy| strategy.data_dir());
    data.map(|data| data.join("cofferdam")).map_err(|error| {
        HostError::new(HostErrorKind::Configuration, "There is no home directory to work in.")
            .with_hint("Name one with --home DIR or COFFERDAM_HOME, or set HOME.")
            .with_source(error)
    })
}

/// Returns whether the text is a connector's name and not a file.
pub(super) fn is_reference(text: &str) -> bool {
    text.contains("://")
}

/// Returns whether `text` means an installed connector and not a package. `hello` is more likely an abbreviated
/// name than a missing file without an extension.
pub(super) fn is_installed_name(text: &str) -> bool {
    !PackageRef::is_remote(text) && (is_reference(text) || !(text.contains('.') || Path::new(text).exists()))
}

/// The installed connector that `text` names; for a name without its beginning, the whole name as a way on.
pub(super) fn resolve(host: &Host, text: &str) -> Result<ConnectorRef, HostError> {
    if is_reference(text) {
        return host.resolve(text);
    }
    let short = text.split('@').next().unwrap_or_default();
    let names = host.list()?.into_iter().map(|entry| entry.name.to_string());
    let hint = match names.into_iter().find(|name| name.rsplit('/').next() == Some(short)) {
        Some(name) => format!("Did you mean {name}?"),
        None => "A name is written like github://acme/slack; `cofferdam list` shows those there are.".into(),
    };
    let message = format!("`{}` is not a connector's whole name.", sanitize_line(text, 100));
    Err(HostError::new(HostErrorKind::ConnectorNotFound, message).with_hint(hint))
}

/// Returns the default path of a package's signature.
pub(super) fn signature_path(package: &Path) -> PathBuf {
    files::beside(package, ".dsse.json")
}
