//! `config.toml` of a home directory: what the operator lets every call of this host do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_audit::Durability;
use cofferdam_core::document::{DocumentTable, InvalidValue, read};
use cofferdam_core::error::HostError;
use cofferdam_core::limits::{LimitRequest, parse_time};
use cofferdam_egress::egress::{HostPort, RootCertificates};
use cofferdam_egress::resilience;
use cofferdam_runtime::approvals::ApprovalPolicy;
use cofferdam_runtime::host::CODE_CACHE_BYTES;
use zeroize::Zeroizing;

use super::cluster_config::{self, ClusterConfig, JobsConfig};
use super::files;
use super::vault_config::VaultConfig;

/// The file's name in the home directory.
pub(super) const FILE: &str = "config.toml";

/// The contents of the file. Without a file nothing is configured.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ConfigFile {
    /// `host:port`s that connectors may reach although their address is inside the operator's network.
    pub(super) allow_private: Vec<String>,
    /// The registries that are spoken to without TLS.
    pub(super) plain_http: Vec<HostPort>,
    /// The trusted certificate authorities.
    pub(super) roots: RootCertificates,
    /// PEM files with certificate authorities to trust in addition.
    pub(super) extra_roots: Vec<PathBuf>,
    /// The most compiled code that is kept, in bytes, where it is not the host's default.
    pub(super) cache_size: Option<u64>,
    /// The place where the secrets of bindings are kept.
    pub(super) vault: VaultConfig,
    /// The settings for retries, breakers and rate limits.
    pub(super) resilience: resilience::ResilienceSettings,
    /// The settings of the audit log.
    pub(super) audit: AuditConfig,
    /// The calls that wait for the approval of a person.
    pub(super) approvals: ApprovalPolicy,
    /// The settings of the cluster.
    pub(super) cluster: ClusterConfig,
    /// The settings of the queue of jobs.
    pub(super) jobs: JobsConfig,
}

/// The settings of the audit log; none is the host's default.
#[derive(Debug, Default, PartialEq)]
pub(super) struct AuditConfig {
    /// The durability of the audit log.
    pub(super) durability: Option<Durability>,
    /// True if requests and outcomes are stored for resuming and replaying.
    pub(super) results: Option<bool>,
    /// The lifetime of the outcome under an idempotency key.
    pub(super) key_ttl: Option<Duration>,
    /// The retention of calls in the audit log; unlimited by default.
    pub(super) retention: Option<Duration>,
    /// The most bytes of sealed requests and outcomes: of one client, and in all.
    pub(super) sealed_size_per_client: Option<u64>,
    pub(super) sealed_size: Option<u64>,
    /// The most bytes of a readable text in the audit log.
    pub(super) field_bytes: Option<usize>,
    /// The URL of the database that the audit log is in, in the place of the home directory.
    pub(super) url: Option<DatabaseUrl>,
    /// The file with the password of the database.
    pub(super) password_file: Option<PathBuf>,
    /// True if the database may be reached by plain text beyond this machine.
    pub(super) plain_text: Option<bool>,
}

/// The URL of a database, which may have a password in it.
#[derive(Clone, PartialEq)]
pub(super) struct DatabaseUrl(Zeroizing<String>);

impl DatabaseUrl {
    pub(super) fn new(url: String) -> Self {
        Self(Zeroizing::new(url))
    }

    #[cfg(feature = "cluster")]
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl")
    }
}

impl ConfigFile {
    /// Reads the file in `home`, if there is one.
    pub(super) fn load(home: &Path) -> Result<Self, HostError> {
        let path = home.join(FILE);
        let mut settings = match files::read_own("The configuration", &path)? {
            None => Self::default(),
            Some(text) => Self::parse(&files::shown(&path), home, &text)?,
        };
        if cfg!(feature = "cluster") && settings.cluster.host.is_none() {
            settings.cluster.host = machine_name();
        }
        Ok(settings)
    }

    fn parse(label: &str, home: &Path, text: &str) -> Result<Self, HostError> {
        let parsed = read(label, text, |root| {
            let own = ["network", "compile", "vault", "audit", "approvals", "cluster", "jobs"];
            root.reject_unknown_keys(&[&own[..], &resilience::ResilienceSettings::BLOCKS].concat());
            let mut settings =
                Self { resilience: resilience::ResilienceSettings::read(root), ..Self::default() };
            if let Some(network) = root.table("network") {
                network.reject_unknown_keys(&["allow_private", "plain_http", "roots", "extra_roots"]);
                for entry in network.texts("allow_private") {
                    settings.allow_private.extend(entry.parse(|text| private_grant(text)));
                }
                for entry in network.texts("plain_http") {
                    settings.plain_http.extend(entry.parse(|text| host_port(text)));
                }
                let whose = network.text("roots").and_then(|roots| roots.parse(|text| whose_roots(text)));
                settings.roots = whose.unwrap_or_default();
                // Relative to the home directory: the file means the same wherever it is read from.
                let roots = network.texts("extra_roots");
                settings.extra_roots.extend(roots.iter().map(|root| home.join(root.value)));
            }
            if let Some(compile) = root.table("compile") {
                compile.reject_unknown_keys(&["cache_size"]);
                settings.cache_size = compile.text("cache_size").and_then(|size| size.parse(|it| bytes(it)));
            }
            if let Some(vault) = root.table("vault") {
                settings.vault = VaultConfig::read(&vault, home)?;
            }
            if let Some(audit) = root.table("audit") {
                settings.audit = AuditConfig::read(home, &audit);
            }
            if let Some(approvals) = root.table("approvals") {
                settings.approvals = ApprovalPolicy::read(&approvals);
            }
            if let Some(cluster) = root.table("cluster") {
                settings.cluster = ClusterConfig::read(&cluster, home);
            }
            if let Some(jobs) = root.table("jobs") {
                settings.jobs = JobsConfig::read(&jobs);
            }
            Some(settings)
        });
        parsed.map_err(files::document_error)
    }
}

impl AuditConfig {
    fn read(home: &Path, table: &DocumentTable<'_>) -> Self {
        table.reject_unknown_keys(&[
            "url",
            "password_file",
            "plain_text",
            "durability",
            "results",
            "key_ttl",
            "retention",
            "sealed_size",
            "sealed_size_per_client",
            "field_bytes",
        ]);
        let size = |key| table.text(key).and_then(|size| size.parse(|text| bytes(text)));
        let time = |key, least| table.text(key).and_then(|time| time.parse(|text| long_time(text, least)));
        Self {
            durability: table.text("durability").and_then(|word| word.parse(|text| durability(text))),
            results: table.flag("results"),
            key_ttl: time("key_ttl", Duration::from_secs(1)),
            retention: time("retention", Duration::from_secs(60 * 60)),
            sealed_size_per_client: size("sealed_size_per_client"),
            sealed_size: size("sealed_size"),
            field_bytes: table
                .integer("field_bytes")
                .and_then(|bytes| bytes.parse(|bytes| field_bytes(*bytes))),
            url: table.text("url").map(|url| DatabaseUrl::new(url.value.to_owned())),
            password_file: table.text("password_file").map(|path| home.join(path.value)),
            plain_text: table.flag("plain_text"),
        }
    }
}

/// Returns the name of this machine, which is out of reach once a server has confined itself.
fn machine_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    cluster_config::host_name(name.trim()).ok()
}

/// Parses the durability of the audit log.
fn durability(text: &str) -> Result<Durability, InvalidValue> {
    match text {
        "process" => Ok(Durability::Process),
        "power" => Ok(Durability::Power),
        _ => Err(InvalidValue::new(
            "not a durability".to_owned(),
            "write \"process\" (the end of the process) or \"power\" (a power cut, too)",
        )),
    }
}

/// A time of up to ten years, as other documents write it, or in days.
fn long_time(text: &str, least: Duration) -> Result<Duration, InvalidValue> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let days = |text: &str| {
        let days: u32 = text.strip_suffix('d').filter(|days| !days.starts_with('+'))?.parse().ok()?;
        DAY.checked_mul(days)
    };
    let time = days(text).or_else(|| parse_time(text)).filter(|time| (least..=DAY * 3_660).contains(time));
    time.ok_or_else(|| {
        let what = format!("not a time from {} s to 3660d", least.as_secs());
        InvalidValue::new(what, "write it as a whole number with s, m, h or d, like \"24h\" or \"90d\"")
    })
}

/// The most bytes of a readable text in the audit log.
fn field_bytes(bytes: u64) -> Result<usize, InvalidValue> {
    let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= 1 << 20);
    fits.ok_or_else(|| InvalidValue::new("more than 1048576".to_owned(), "write 0 (no payloads) to 1048576"))
}

/// Refuses what the host would refuse later, with its place in the file.
fn private_grant(text: &str) -> Result<String, InvalidValue> {
    match cofferdam_egress::egress::PrivateGrant::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            let fix = "write it like \"localhost:8080\" or \"gitlab.corp:443=10.20.0.0/16\"";
            Err(InvalidValue::new(error.to_string(), fix))
        }
    }
}

fn host_port(text: &str) -> Result<HostPort, InvalidValue> {
    HostPort::parse(text)
        .map_err(|error| InvalidValue::new(error.to_string(), "write it like \"registry.corp:5000\""))
}

/// Parses the set of trusted certificate authorities.
fn whose_roots(text: &str) -> Result<RootCertificates, InvalidValue> {
    match text {
        "platform" => Ok(RootCertificates::Platform),
        "bundled" => Ok(RootCertificates::Bundled),
        _ => Err(InvalidValue::new(
            "not a set of certificate authorities".to_owned(),
            "write \"platform\" (this machine's) or \"bundled\" (Mozilla's, in this program)",
        )),
    }
}

/// An amount of bytes that the code cache, or what is sealed, may have.
fn bytes(text: &str) -> Result<u64, InvalidValue> {
    let amount = LimitRequest::parse(None, None, Some(text)).ok().and_then(|amount| amount.memory());
    let fits = amount.filter(|bytes| CODE_CACHE_BYTES.contains(bytes));
    fits.ok_or_else(|| {
        InvalidValue::new("not a size from 1MiB to 1024GiB".to_owned(), "write it like \"512MiB\"")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::path::Path;
    use std::time::Duration;

    use super::{AuditConfig, ConfigFile, VaultConfig};
    use cofferdam_audit::Durability;
    use cofferdam_egress::egress::RootCertificates;

    fn parse(text: &str) -> Result<ConfigFile, cofferdam_core::error::HostError> {
        ConfigFile::parse("config.toml", Path::new("/home"), text)
    }

    #[test]
    fn paths_are_relative_to_the_home_directory() {
        let settings = parse(
            "[network]\nallow_private = [\"localhost:8080\"]\nextra_roots = [\"ca.pem\", \"/etc/ca.pem\"]\n",
        )
        .unwrap();
        assert_eq!(settings.allow_private, ["localhost:8080"]);
        assert_eq!(settings.extra_roots, [Path::new("/home/ca.pem"), Path::new("/etc/ca.pem")]);
        let vault = parse("[vault]\nkey_file = \"keys/vault.key\"").unwrap();
        assert_eq!(vault.vault, VaultConfig::File { key_file: Some("/home/keys/vault.key".into()) });
        assert_eq!(parse("").unwrap(), ConfigFile::default());
        for (text, roots) in
            [("platform", RootCertificates::Platform), ("bundled", RootCertificates::Bundled)]
        {
            assert_eq!(parse(&format!("[network]\nroots = \"{text}\"")).unwrap().roots, roots);
        }
        assert_eq!(parse("[compile]\ncache_size = \"512MiB\"").unwrap().cache_size, Some(512 << 20));
    }

    #[test]
    fn audit_settings_are_read_from_the_file() {
        let text = "[audit]\ndurability = \"power\"\nresults = false\nkey_ttl = \"36h\"\nretention = \"90d\"\n\
                    sealed_size = \"4GiB\"\nsealed_size_per_client = \"64MiB\"\nfield_bytes = 0\n";
        let hours = |hours: u64| Some(Duration::from_secs(hours * 3600));
        let audit = AuditConfig {
            durability: Some(Durability::Power),
            results: Some(false),
            key_ttl: hours(36),
            retention: hours(90 * 24),
            sealed_size_per_client: Some(64 << 20),
            sealed_size: Some(4 << 30),
            field_bytes: Some(0),
            ..AuditConfig::default()
        };
        assert_eq!(parse(text).unwrap().audit, audit);
        assert_eq!(parse("[audit]").unwrap(), ConfigFile::default());
    }

    #[test]
    fn cluster_and_job_settings_are_read() {
        let text = "[cluster]\nhost = \"a-1\"\nnats = \"tls://nats:4222\"\nnats_password_file = \"nats.password\"\n\
                    nats_plain_text = true\n[jobs]\nmax_jobs = 5\nmax_bytes = \"2GiB\"\nreplicas = 3\n\
                    ack_wait = \"30s\"\nkeep = \"14d\"\n";
        let settings = parse(text).unwrap();
        let cluster = settings.cluster;
        assert_eq!(
            (cluster.host.as_deref(), cluster.nats.as_deref()),
            (Some("a-1"), Some("tls://nats:4222"))
        );
        assert_eq!(cluster.nats_password_file.as_deref(), Some(Path::new("/home/nats.password")));
        assert!(cluster.nats_plain_text);
        let jobs = settings.jobs;
        assert_eq!((jobs.max_jobs, jobs.max_bytes, jobs.replicas), (Some(5), Some(2 << 30), Some(3)));
        assert_eq!(jobs.ack_wait, Some(Duration::from_secs(30)));
        assert_eq!(jobs.keep, Some(Duration::from_secs(14 * 24 * 3600)));
    }

    #[test]
    fn unknown_settings_are_refused_with_their_place() {
        for (text, place) in [
            ("[network]\nallow_privat = []", "config.toml:2:1"),
            ("[networks]", "config.toml:1:2"),
            ("[network]\nallow_private = [\"localhost\"]", "config.toml:2:18"),
            ("[network]\nplain_http = [\"registry.corp\"]", "config.toml:2:15"),
            ("[network]\nextra_roots = \"ca.pem\"", "config.toml:2:15"),
            ("[network]\nroots = \"mozilla\"", "config.toml:2:9"),
            ("[network]\nroots = []", "config.toml:2:9"),
            ("[compile]\ncache_size = 512", "config.toml:2:14"),
            ("[compile]\ncache_size = \"512\"", "config.toml:2:14"),
            ("[compile]\ncache_size = \"1KiB\"", "config.toml:2:14"),
            ("[vault]\nkeyfile = \"x\"", "config.toml:2:1"),
            ("[retry]\nprofile = \"patien\"", "config.toml:2:11"),
            ("[audit]\ndurability = \"disk\"", "config.toml:2:14"),
            ("[audit]\nresults = \"no\"", "config.toml:2:11"),
            ("[audit]\nkey_ttl = \"0s\"", "config.toml:2:11"),
            ("[audit]\nkey_ttl = 24", "config.toml:2:11"),
            ("[audit]\nretention = \"+1d\"", "config.toml:2:13"),
            ("[audit]\nretention = \"5m\"", "config.toml:2:13"),
            ("[audit]\nsealed_size = \"1KiB\"", "config.toml:2:15"),
            ("[audit]\nfield_bytes = 1048577", "config.toml:2:15"),
            ("[audit]\nkeyttl = \"1h\"", "config.toml:2:1"),
            ("[audit]\nurl = 5432", "config.toml:2:7"),
            ("[audit]\npassword = \"x\"", "config.toml:2:1"),
            ("[audit]\nplain_text = \"yes\"", "config.toml:2:14"),
            ("[approvals]\nrequest_lifetime = \"1s\"", "config.toml:2:20"),
            ("[[approvals.rules]]\nask = true\neffects = [\"x\"]", "config.toml:3:12"),
            ("[cluster]\nhosts = \"a\"", "config.toml:2:1"),
            ("[cluster]\nlease = \"0s\"", "config.toml:2:9"),
            ("[cluster]\nnatz = \"x\"", "config.toml:2:1"),
            ("[cluster]\nhost = \"a b\"", "config.toml:2:8"),
            ("[jobs]\nmax_jobs = 0", "config.toml:2:12"),
            ("[jobs]\nreplicas = 6", "config.toml:2:12"),
            ("[jobs]\nack_wait = \"1ms\"", "config.toml:2:12"),
            ("[jobs]\nmax_bytes = \"1KiB\"", "config.toml:2:13"),
            ("[jobs]\nmaxjobs = 1", "config.toml:2:1"),
            ("[cluster]\ntrust = \"oci://a.example/t\"", "config.toml:2:9"),
            ("[cluster]\ntrust = \"oci://a.example/t:1\"", "a trust that nobody may sign"),
            ("[cluster]\ntrust_keys = [\"ed25519:x\"]", "config.toml:2:15"),
            ("network = ", "config.toml:1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message().contains(place), "{text}: {error}");
        }
    }

    #[test]
    fn an_invalid_trust_key_is_the_only_problem() {
        let text = "[cluster]\ntrust = \"oci://a.example/t:1\"\ntrust_keys = [\"ed25519:x\"]";
        let error = parse(text).unwrap_err();
        let said = error.message();
        assert!(said.contains("config.toml:3:15") && !said.contains(" more)"), "{said}");
    }
}
