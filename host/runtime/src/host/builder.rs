//! Configures a host: the paths of its files, its compiler, its concurrency and its network access.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_audit::approvals::{ApprovalFile, ApprovalStore};
use cofferdam_audit::{AuditLog, Durability, JournalLog, LogSettings, SealedQuota};
use cofferdam_core::clock::{Clock, SystemClock};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::event::{Listener, fanout};
use cofferdam_core::limits::{LimitCeilings, LimitRequest};
use cofferdam_core::rng::{RandomSource, SystemRng};
use cofferdam_core::secret::Secret;
use cofferdam_egress::credentials::{BrokerSettings, CredentialBroker, SharedRenewals};
use cofferdam_egress::egress::{
    HostRequestClient, PrivateGrant, Resolve, RootCertificates, SystemResolver, Tls, roots_from_pem,
};
use cofferdam_egress::resilience::{
    CircuitReplica, CircuitStore, RateLimits, ResilienceSettings, SharedRateLimits,
};
use cofferdam_egress::vault::{Vault, VaultFile};
use cofferdam_model::registry::Registry;
use cofferdam_model::trust::KeyringFile;
use cofferdam_sandbox::{CodeStore, CompileLimits, Compiler, EgressSettings, Sandbox};

use super::{Audit, Host};
use crate::approvals::{ApprovalGate, ApprovalPolicy};
use crate::call::{AuditContext, AuditSettings, CallPipeline, PackageLoader, PipelineParts, actor_name};
use crate::flow::actions::ActionStore;

/// The default number of calls that run at once. Each takes an instance slot: address space, and up to 1 MiB that
/// is kept after a call.
const CONCURRENCY: u32 = 256;

/// The default size of the code cache on disk, in bytes: some 25 connectors with an embedded interpreter, or
/// thousands without.
const CODE_BYTES: u64 = 1024 * 1024 * 1024;

/// The valid sizes of the code cache.
pub const CODE_CACHE_BYTES: RangeInclusive<u64> = 1 << 20..=1 << 40;

/// The configuration of a host; see [`Host::builder`].
pub struct HostBuilder {
    home: Option<PathBuf>,
    compiler: Option<Compiler>,
    compile_limits: CompileLimits,
    code_bytes: u64,
    concurrency: u32,
    allow_private: Vec<String>,
    roots: RootCertificates,
    extra_roots: Vec<Vec<u8>>,
    ceilings: LimitRequest,
    keep_code: bool,
    resilience: ResilienceSettings,
    listeners: Vec<Arc<dyn Listener>>,
    rng: Arc<dyn RandomSource>,
    clock: Arc<dyn Clock>,
    resolver: Arc<dyn Resolve>,
    log: Option<Arc<dyn AuditLog>>,
    log_settings: LogSettings,
    record: AuditSettings,
    user: Option<Arc<str>>,
    vault: Option<Arc<dyn Vault>>,
    vault_key_file: Option<PathBuf>,
    vault_passphrase: Option<Secret>,
    shared: Option<SharedState>,
    policy: ApprovalPolicy,
    approvals: Option<Arc<dyn ApprovalStore>>,
}

/// The state that a host shares with the other hosts of a cluster. Without it, a host has its own.
#[derive(Debug, Clone)]
pub struct SharedState {
    /// The copy of the circuits.
    pub circuits: Arc<CircuitReplica>,
    /// The rate limits.
    pub rates: Arc<dyn SharedRateLimits>,
    /// The renewals of tokens.
    pub renewals: SharedRenewals,
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
            roots: RootCertificates::default(),
            extra_roots: Vec::new(),
            ceilings: LimitRequest::default(),
            keep_code: true,
            resilience: ResilienceSettings::default(),
            listeners: Vec::new(),
            rng: Arc::new(SystemRng),
            clock: Arc::new(SystemClock),
            resolver: Arc::new(SystemResolver::default()),
            log: None,
            log_settings: LogSettings::default(),
            record: AuditSettings::default(),
            user: None,
            vault: None,
            vault_key_file: None,
            vault_passphrase: None,
            shared: None,
            policy: ApprovalPolicy::default(),
            approvals: None,
        }
    }
}

impl HostBuilder {
    /// Sets the directory with `keyring.toml`, `packages/`, `actions/`, `cache/`, `audit/` and `vault`. Required.
    /// It is created with the first write.
    #[must_use]
    pub fn home(mut self, dir: impl Into<PathBuf>) -> Self {
        self.home = Some(dir.into());
        self
    }

    /// Sets the compiler of components. Required: nothing is compiled in this process unless you ask for it.
    #[must_use]
    pub fn compiler(mut self, compiler: Compiler) -> Self {
        self.compiler = Some(compiler);
        self
    }

    /// Sets the limits of compiling. Default: [`CompileLimits::default`].
    #[must_use]
    pub fn compile_limits(mut self, limits: CompileLimits) -> Self {
        self.compile_limits = limits;
        self
    }

    /// Sets the size of the code cache on disk, in bytes, 1 MiB to 1 TiB. The least recently used code is evicted
    /// first. Default 1 GiB.
    #[must_use]
    pub fn code_cache_size(mut self, bytes: u64) -> Self {
        self.code_bytes = bytes;
        self
    }

    /// Sets the number of calls that run at once. Further calls wait, and are refused as busy if there are too
    /// many. Default 256.
    #[must_use]
    pub fn concurrency(mut self, calls: u32) -> Self {
        self.concurrency = calls;
        self
    }

    /// Lets connectors that are granted this `host:port` reach it although its address is inside your own network.
    /// By default no such host is reachable. A bare `localhost:8080` may be a loopback address, and any other bare
    /// name an address of a private network. `gitlab.corp:443=10.20.0.0/16` may be of that range and no other
    /// ([`PrivateGrant`](cofferdam_egress::egress::PrivateGrant)).
    #[must_use]
    pub fn allow_private(mut self, host_port: impl Into<String>) -> Self {
        self.allow_private.push(host_port.into());
        self
    }

    /// Sets the certificate authorities that connectors' TLS connections trust. Default: the platform's, read at
    /// the first such connection.
    #[must_use]
    pub fn roots(mut self, roots: RootCertificates) -> Self {
        self.roots = roots;
        self
    }

    /// Trusts this certificate authority (PEM) for connectors' TLS connections, in addition to those.
    #[must_use]
    pub fn extra_root_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.extra_roots.push(pem.into());
        self
    }

    /// Lowers the ceilings for the limits of all calls.
    #[must_use]
    pub fn ceilings(mut self, ceilings: LimitRequest) -> Self {
        self.ceilings = ceilings;
        self
    }

    /// Stores no compiled code on disk: every start compiles again.
    #[must_use]
    pub fn without_code_cache(mut self) -> Self {
        self.keep_code = false;
        self
    }

    /// Sets the resilience policies: retry profiles, breakers, rate limits. Default: every call has the profile
    /// `standard`, no breaker and no rate limit.
    #[must_use]
    pub fn resilience(mut self, settings: ResilienceSettings) -> Self {
        self.resilience = settings;
        self
    }

    /// Notifies `listener` of every step of every call. May be called several times. Listeners are notified in this
    /// order.
    #[must_use]
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Draws the jitter of retry delays from `chance`.
    #[must_use]
    pub fn rng(mut self, chance: Arc<dyn RandomSource>) -> Self {
        self.rng = chance;
        self
    }

    /// Takes the time from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Resolves host names with `resolver`.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Sets how long calls stay in the audit log. The host removes older ones once an hour, in whole segments,
    /// from the oldest on. Default: until the operator prunes it.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.log_settings.retention = Some(retention);
        self
    }

    /// The most bytes of sealed requests and outcomes in the audit log, kept for recovery and replay. Default:
    /// 256 MiB for one client, 1 GiB in all.
    #[must_use]
    pub fn sealed_quota(mut self, quota: SealedQuota) -> Self {
        self.log_settings.sealed = quota;
        self
    }

    /// Sets the durability of the audit log. Default: [`Durability::Process`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.log_settings.durability = durability;
        self
    }

    /// Sets the actor of calls that name none, for the audit log. Default: `host`.
    #[must_use]
    pub fn actor(mut self, actor: &str) -> Self {
        self.record.actor = actor_name(actor);
        self
    }

    /// Sets the user that changes of operators are recorded with: installs, bindings, trust. Default: the actor.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(actor_name(user));
        self
    }

    /// Sets whether requests and outcomes are stored, sealed with the host's key, so that a call can be resumed
    /// after a crash and its outcome replayed. Default: they are. Without them, a call whose key was given before
    /// gets an error that its key was used, and not the outcome.
    #[must_use]
    pub fn keep_results(mut self, keep: bool) -> Self {
        self.record.keeps = keep;
        self
    }

    /// Sets how long a finished call keeps its idempotency key. After that, a new call with the key runs. Default:
    /// 24 hours.
    #[must_use]
    pub fn key_ttl(mut self, ttl: Duration) -> Self {
        self.record.key_ttl = ttl;
        self
    }

    /// Sets the most bytes of each text that can be read in the audit log, including arguments and results. Longer
    /// texts are cut. Secrets are removed. With 0, payloads are not readable there, only their lengths and their
    /// SHA-256. Default: 65,536.
    #[must_use]
    pub fn field_bytes(mut self, bytes: usize) -> Self {
        self.record.field_bytes = bytes;
        self
    }

    /// Records calls in `log` instead of in the directory `audit` of the home directory.
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

    /// Locks the vault file with this key file: 32 bytes that its owner alone can read. Default: `vault.key` in the
    /// home directory, created with random bytes with the first binding.
    #[must_use]
    pub fn vault_key_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.vault_key_file = Some(path.into());
        self
    }

    /// Locks the vault file with this passphrase instead. A vault file that is locked otherwise is refused.
    #[must_use]
    pub fn vault_passphrase(mut self, passphrase: Secret) -> Self {
        self.vault_passphrase = Some(passphrase);
        self
    }

    /// Shares circuits, rate limits and the renewal of tokens with the other hosts of a cluster.
    #[must_use]
    pub fn shared_state(mut self, shared: SharedState) -> Self {
        self.shared = Some(shared);
        self
    }

    /// Sets which calls wait for the approval of a person. Default: an agent's calls of operations that are declared
    /// destructive.
    #[must_use]
    pub fn approval_policy(mut self, policy: ApprovalPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Keeps approvals in `store` instead of in the directory `audit` of the home directory.
    #[must_use]
    pub fn approval_store(mut self, store: Arc<dyn ApprovalStore>) -> Self {
        self.approvals = Some(store);
        self
    }

    /// Builds the host.
    ///
    /// # Errors
    /// `configuration`, naming the setting: no home, no compiler or one that is not a program, no concurrency, an
    /// authority or a certificate that cannot be read, a ceiling above the default one, a vault together with
    /// settings of the vault file.
    pub fn build(self) -> Result<Host, HostError> {
        let wrong =
            |message: &str, hint: &str| HostError::new(HostErrorKind::Configuration, message).with_hint(hint);
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
        let ceilings = LimitCeilings::default().lowered(&self.ceilings).map_err(|error| {
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
            None => Arc::new(JournalLog::new(&home, self.log_settings, Arc::clone(&self.clock))),
        };
        let user = self.user.unwrap_or_else(|| Arc::clone(&self.record.actor));
        let context = AuditContext::new(Arc::clone(&log), home.join("host.key"), self.record);
        let broker = CredentialBroker::new(BrokerSettings {
            vault: Arc::clone(&vault),
            clock: Arc::clone(&self.clock),
            tls: Arc::clone(&tls),
            resolver: Arc::clone(&self.resolver),
            allow_private: Arc::clone(&allow_private),
            locks: home.join("locks"),
            renewals: self.shared.as_ref().map(|shared| shared.renewals.clone()),
        });
        let requests = HostRequestClient::new(
            Arc::clone(&self.clock),
            Arc::clone(&tls),
            Arc::clone(&self.resolver),
            Arc::clone(&allow_private),
        );
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
        let store = self.approvals.unwrap_or_else(|| Arc::new(ApprovalFile::new(&home)));
        let approvals = ApprovalGate { policy: self.policy, store, log: Arc::clone(&log) };
        let audit = Audit::new(log, home.clone(), user, Arc::clone(&self.clock));
        let loader = PackageLoader::new(registry, keyring, sandbox, ceilings, self.clock, queue);
        let action_store = ActionStore::new(home.join("actions"));
        let circuits = home.join("circuits");
        let (circuits, rates) = match self.shared {
            None => (CircuitStore::new(circuits), RateLimits::default()),
            Some(shared) => {
                (CircuitStore::shared(circuits, shared.circuits), RateLimits::shared(shared.rates))
            }
        };
        let pipeline = CallPipeline::new(PipelineParts {
            loader,
            broker,
            settings: self.resilience,
            circuits,
            rates,
            rng: self.rng,
            listener: fanout(self.listeners),
            audit: context,
            approvals,
            concurrency: self.concurrency,
        });
        Ok(Host { pipeline: Arc::new(pipeline), vault, audit, action_store, requests })
    }
}
