//! Configures a host: where its files are, how it compiles, how much it runs at once, what it may reach.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_audit::{AuditLog, Durability, LogSettings, SealedQuota, SqliteLog};
use cofferdam_core::chance::{Chance, SystemChance};
use cofferdam_core::clock::{Clock, SystemClock};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::{Listener, together};
use cofferdam_core::limits::{Ceilings, LimitRequest};
use cofferdam_core::secret::Secret;
use cofferdam_egress::credentials::{Broker, BrokerSettings};
use cofferdam_egress::egress::{PrivateGrant, Resolve, Roots, SystemResolver, Tls, roots_from_pem};
use cofferdam_egress::resilience::{Circuits, Settings};
use cofferdam_egress::vault::{Vault, VaultFile};
use cofferdam_model::registry::Registry;
use cofferdam_model::trust::KeyringFile;
use cofferdam_sandbox::{CodeStore, CompileLimits, Compiler, EgressSettings, Sandbox};

use super::{Audit, Host};
use crate::call::{Loader, Pipeline, PipelineParts, RecordSettings, Recording, actor_name};
use crate::flow::actions::Shelf;

/// Calls that run at once where nobody says otherwise. Each takes an instance slot: address space, and
/// up to 1 MiB that is kept after a call.
const CONCURRENCY: u32 = 256;

/// Compiled code that is kept on disk where nobody says otherwise, in bytes: some 25 connectors with an
/// interpreter in them, or thousands without.
const CODE_BYTES: u64 = 1024 * 1024 * 1024;

/// What the size of that may be.
pub const CODE_CACHE_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// What a host is made from; see [`Host::builder`].
pub struct HostBuilder {
    home: Option<PathBuf>,
    compiler: Option<Compiler>,
    compile_limits: CompileLimits,
    code_bytes: u64,
    concurrency: u32,
    allow_private: Vec<String>,
    roots: Roots,
    extra_roots: Vec<Vec<u8>>,
    ceilings: LimitRequest,
    keep_code: bool,
    resilience: Settings,
    listeners: Vec<Arc<dyn Listener>>,
    chance: Arc<dyn Chance>,
    clock: Arc<dyn Clock>,
    resolver: Arc<dyn Resolve>,
    log: Option<Arc<dyn AuditLog>>,
    durability: Durability,
    retention: Option<Duration>,
    sealed: SealedQuota,
    record: RecordSettings,
    vault: Option<Arc<dyn Vault>>,
    vault_key_file: Option<PathBuf>,
    vault_passphrase: Option<Secret>,
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self {
            home: None,
            compiler: None,
            compile_limits: CompileLimits::default(),
            code_bytes: CODE_BYTES,
            concurrency: CONCURRENCY,
            allow_private: Vec::new(),
            roots: Roots::default(),
            extra_roots: Vec::new(),
            ceilings: LimitRequest::default(),
            keep_code: true,
            resilience: Settings::default(),
            listeners: Vec::new(),
            chance: Arc::new(SystemChance),
            clock: Arc::new(SystemClock),
            resolver: Arc::new(SystemResolver::default()),
            log: None,
            durability: Durability::default(),
            retention: None,
            sealed: SealedQuota::default(),
            record: RecordSettings::default(),
            vault: None,
            vault_key_file: None,
            vault_passphrase: None,
        }
    }
}

impl HostBuilder {
    /// The directory with `keyring.toml`, `packages/`, `actions/`, `cache/` and `vault`. Required; made when first written to.
    #[must_use]
    pub fn home(mut self, dir: impl Into<PathBuf>) -> Self {
        self.home = Some(dir.into());
        self
    }

    /// Where components are compiled. Required: nothing is compiled in this process unless you say so.
    #[must_use]
    pub fn compiler(mut self, compiler: Compiler) -> Self {
        self.compiler = Some(compiler);
        self
    }

    /// What compiling may take. Default: [`CompileLimits::default`].
    #[must_use]
    pub fn compile_limits(mut self, limits: CompileLimits) -> Self {
        self.compile_limits = limits;
        self
    }

    /// The most compiled code that is kept on disk, in bytes, 1 MiB to 1 TiB; what was used longest ago
    /// goes first. Default 1 GiB.
    #[must_use]
    pub fn code_cache_size(mut self, bytes: u64) -> Self {
        self.code_bytes = bytes;
        self
    }

    /// Calls that run at once; more wait, and many more are refused as busy. Default 256.
    #[must_use]
    pub fn concurrency(mut self, calls: u32) -> Self {
        self.concurrency = calls;
        self
    }

    /// Lets connectors that are granted this `host:port` reach it although its address is inside your own network.
    /// Nothing of that kind is reachable by default. A bare `localhost:8080` may be a loopback address, any other
    /// bare name an address of a private network; `gitlab.corp:443=10.20.0.0/16` may be of that range and no other
    /// ([`PrivateGrant`](cofferdam_egress::egress::PrivateGrant)).
    #[must_use]
    pub fn allow_private(mut self, host_port: impl Into<String>) -> Self {
        self.allow_private.push(host_port.into());
        self
    }

    /// Whose certificate authorities connectors' TLS connections believe. Default: the platform's, read
    /// at the first such connection.
    #[must_use]
    pub fn roots(mut self, roots: Roots) -> Self {
        self.roots = roots;
        self
    }

    /// Trusts this certificate authority (PEM) for connectors' TLS connections, beside those.
    #[must_use]
    pub fn extra_root_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.extra_roots.push(pem.into());
        self
    }

    /// Lowers the ceilings above which no call's limits may be.
    #[must_use]
    pub fn ceilings(mut self, ceilings: LimitRequest) -> Self {
        self.ceilings = ceilings;
        self
    }

    /// Keeps no compiled code on disk: every start compiles again.
    #[must_use]
    pub fn without_code_cache(mut self) -> Self {
        self.keep_code = false;
        self
    }

    /// What is done about failures: retry profiles, breakers, rate limits. Default: every call has the profile
    /// `standard`, no breaker and no rate limit.
    #[must_use]
    pub fn resilience(mut self, settings: Settings) -> Self {
        self.resilience = settings;
        self
    }

    /// Tells `listener` every step of every call. May be given several times: each is told, in this order.
    #[must_use]
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Draws the jitter of waits from `chance`.
    #[must_use]
    pub fn chance(mut self, chance: Arc<dyn Chance>) -> Self {
        self.chance = chance;
        self
    }

    /// Takes the time from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Looks up names with `resolver`.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// How long calls stay on record; the host prunes older ones by itself, from the oldest on, while nobody waits.
    /// Default: for as long as nobody prunes it.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = Some(retention);
        self
    }

    /// The most bytes of sealed requests and outcomes in the audit log, kept for recovery and replay. Default:
    /// 256 MiB for one client, 1 GiB in all.
    #[must_use]
    pub fn sealed_quota(mut self, quota: SealedQuota) -> Self {
        self.sealed = quota;
        self
    }

    /// What the record of calls survives. Default: [`Durability::Process`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Who asks, for the record of calls that do not say it themselves. Default: `host`.
    #[must_use]
    pub fn actor(mut self, actor: &str) -> Self {
        self.record.actor = actor_name(actor);
        self
    }

    /// Whether requests and outcomes are kept, sealed with the host's key, so that a call can be resumed after a crash
    /// and its outcome be given again. Default: they are. Without them whoever gives a key again is told that
    /// something was done under it, and not what came of it.
    #[must_use]
    pub fn keep_results(mut self, keep: bool) -> Self {
        self.record.keeps = keep;
        self
    }

    /// How long a finished call stands for its idempotency key; after that who gives it again runs. Default: 24 hours.
    #[must_use]
    pub fn key_ttl(mut self, ttl: Duration) -> Self {
        self.record.key_ttl = ttl;
        self
    }

    /// The most bytes of each text, arguments and results among them, that can be read in the record; what is longer
    /// is cut. Secrets are taken out. With 0 no payloads can be read there, only how long they are and their SHA-256.
    /// Default: 65,536.
    #[must_use]
    pub fn field_bytes(mut self, bytes: usize) -> Self {
        self.record.field_bytes = bytes;
        self
    }

    /// Records calls in `log` instead of in `audit.db` of the home directory.
    #[must_use]
    pub fn audit_log(mut self, log: Arc<dyn AuditLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Keeps bindings in `vault` instead of in the file `vault` of the home directory.
    #[must_use]
    pub fn vault(mut self, vault: Arc<dyn Vault>) -> Self {
        self.vault = Some(vault);
        self
    }

    /// Locks the vault file with this key file, 32 bytes that its owner alone can read. Default: `vault.key`
    /// in the home directory, made of random bytes with the first binding.
    #[must_use]
    pub fn vault_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.vault_key_file = Some(path.into());
        self
    }

    /// Locks the vault file with this passphrase instead, and refuses one that is locked otherwise.
    #[must_use]
    pub fn vault_passphrase(mut self, passphrase: Secret) -> Self {
        self.vault_passphrase = Some(passphrase);
        self
    }

    /// The host.
    ///
    /// # Errors
    /// `configuration`, naming the setting: no home, no compiler or one that is no program, no concurrency,
    /// an authority or a certificate that cannot be read, a ceiling above the default one, a vault and
    /// settings of the vault file.
    pub fn build(self) -> Result<Host, HostError> {
        let wrong =
            |message: &str, hint: &str| HostError::new(HostErrorKind::Configuration, message).hint(hint);
        let home = self.home.ok_or_else(|| {
            wrong("The host has no home directory.", "Name one with Host::builder().home(dir).")
        })?;
        let compiler = self.compiler.ok_or_else(|| {
            wrong(
                "The host has no compiler.",
                "Use .compiler(Compiler::child(path of the cofferdam binary)), or Compiler::in_process() if you trust every component.",
            )
        })?;
        if self.concurrency == 0 || self.concurrency > 10_000 {
            return Err(wrong("The concurrency is not acceptable.", "Run 1 to 10000 calls at once."));
        }
        if !CODE_CACHE_BYTES.contains(&self.code_bytes) {
            return Err(wrong("The size of the code cache is not acceptable.", "Keep 1 MiB to 1 TiB."));
        }
        let ceilings = Ceilings::default().lowered(&self.ceilings).map_err(|error| {
            wrong(&format!("A ceiling is not acceptable: {error}."), "Ceilings can only be lowered.")
        })?;
        let allow_private =
            self.allow_private.iter().map(|text| PrivateGrant::parse(text)).collect::<Result<Vec<_>, _>>();
        let allow_private = allow_private.map_err(|error| {
            wrong(&format!("allow_private: {error}."), "Write it as host:port or host:port=range.")
        })?;
        let roots = self.extra_roots.iter().map(|pem| roots_from_pem(pem)).collect::<Result<Vec<_>, _>>();
        let tls =
            roots.and_then(|roots| Tls::new(self.roots, roots.into_iter().flatten())).map_err(|error| {
                wrong(&format!("An extra root cannot be used: {error}."), "Give PEM certificates.")
            })?;
        let allow_private: Arc<[PrivateGrant]> = allow_private.into();
        let file_is_set = self.vault_key_file.is_some() || self.vault_passphrase.is_some();
        let vault: Arc<dyn Vault> = match self.vault {
            Some(_) if file_is_set => {
                let hint = "Name a vault, or the key file or passphrase of the vault file.";
                return Err(wrong("The host has a vault, and settings for another.", hint));
            }
            Some(vault) => vault,
            None => {
                let mut file = VaultFile::new(home.join("vault"));
                if let Some(path) = self.vault_key_file {
                    file = file.key_file(path);
                }
                if let Some(passphrase) = self.vault_passphrase {
                    file = file.passphrase(passphrase);
                }
                Arc::new(file)
            }
        };
        let log: Arc<dyn AuditLog> = match self.log {
            Some(log) => log,
            None => {
                let message = "The record cannot be begun.";
                let log = SqliteLog::new(
                    &home,
                    LogSettings {
                        durability: self.durability,
                        retention: self.retention,
                        sealed: self.sealed,
                        ..LogSettings::default()
                    },
                );
                Arc::new(log.map_err(|error| {
                    HostError::new(HostErrorKind::AuditUnavailable, message).because(error)
                })?)
            }
        };
        let recording = Recording::new(Arc::clone(&log), home.join("host.key"), self.record);
        let broker = Broker::new(BrokerSettings {
            vault: Arc::clone(&vault),
            clock: Arc::clone(&self.clock),
            tls: Arc::clone(&tls),
            resolver: Arc::clone(&self.resolver),
            allow_private: Arc::clone(&allow_private),
            locks: home.join("locks"),
        });
        let egress = EgressSettings { tls, resolver: self.resolver, allow_private };
        let store = self.keep_code.then(|| CodeStore {
            dir: home.join("cache"),
            key_file: home.join("host.key"),
            bytes: self.code_bytes,
        });
        let clock = Arc::clone(&self.clock);
        let sandbox = Sandbox::new(self.concurrency, compiler, self.compile_limits, store, egress, clock)?;
        let registry = Registry::open(home.join("packages"));
        let keyring = KeyringFile::new(home.join("keyring.toml"));
        // As many as may wait for a permit to run.
        let queue = crate::call::waiting_calls(self.concurrency);
        let loader = Loader::new(registry, keyring, sandbox, ceilings, self.clock, queue);
        let audit = Audit::new(log, home.clone());
        let shelf = Shelf::new(home.join("actions"));
        let pipeline = Pipeline::new(PipelineParts {
            loader,
            broker,
            settings: self.resilience,
            circuits: Circuits::new(home.join("circuits")),
            chance: self.chance,
            listener: together(self.listeners),
            recording,
            concurrency: self.concurrency,
        });
        Ok(Host { pipeline: Arc::new(pipeline), vault, audit, shelf })
    }
}
