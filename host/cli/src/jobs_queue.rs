//! The queue of jobs that `config.toml` and the environment name, and what servers show of it.

use std::pin::Pin;
use std::sync::Arc;

use cofferdam_cluster::jobs::{JobAuthenticator, JobMetrics, JobQueue, JobSettings, Jobs, NatsLogin};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::host_key;
use cofferdam_core::secret::Secret;
use cofferdam_egress::egress::{RootCertificates, roots_from_pem};
use cofferdam_runtime::host::Host;
use cofferdam_runtime::metrics::Metrics;
use cofferdam_server::http_api::MetricsText;
use cofferdam_server::server::ReadinessCheck;

use super::config_file::ConfigFile;
use super::files;
use super::session::{Session, read_roots};
use super::telemetry;

/// The variable that may hold the address of NATS.
pub(super) const NATS_URL: &str = "COFFERDAM_NATS_URL";

/// Everything that is needed to connect to the queue. It is read before the process is confined.
pub(super) struct QueueConfig {
    login: NatsLogin,
    settings: JobSettings,
}

impl QueueConfig {
    /// Reads the configuration; none if no queue is configured.
    pub(super) fn load(session: &Session<'_>) -> Result<Option<Self>, HostError> {
        let config = ConfigFile::load(&session.home()?)?;
        let from_environment = std::env::var_os(NATS_URL);
        let (source, url) = match (&from_environment, &config.cluster.nats) {
            (Some(url), _) => (NATS_URL, url.to_str().unwrap_or_default()),
            (None, Some(url)) => ("[cluster] nats in config.toml", url.as_str()),
            (None, None) => return Ok(None),
        };
        let mut login = NatsLogin::parse(source, url, config.cluster.nats_plain_text)?;
        if let Some(path) = &config.cluster.nats_password_file {
            let password = files::read_private("The password for NATS", path)?;
            login = login.with_password(Secret::new(password.trim_end().to_owned()));
        }
        if login.has_tls() {
            login = login.with_tls(tls(&config)?);
        }
        let own = JobSettings::default();
        let jobs = &config.jobs;
        let settings = JobSettings {
            max_jobs: jobs.max_jobs.unwrap_or(own.max_jobs),
            max_bytes: jobs.max_bytes.unwrap_or(own.max_bytes),
            replicas: jobs.replicas.and_then(|count| usize::try_from(count).ok()).unwrap_or(own.replicas),
            ack_wait: jobs.ack_wait.unwrap_or(own.ack_wait),
            keep: jobs.keep.unwrap_or(own.keep),
        };
        Ok(Some(Self { login, settings }))
    }

    /// Reads the configuration of a command that needs a queue.
    ///
    /// # Errors
    /// `configuration`: there is none.
    pub(super) fn required(session: &Session<'_>) -> Result<Self, HostError> {
        Self::load(session)?.ok_or_else(|| {
            HostError::new(HostErrorKind::Configuration, "There is no queue of jobs.").with_hint(format!(
                "Name a NATS server with JetStream: nats = \"nats://127.0.0.1:4222\" in [cluster] of config.toml, or {NATS_URL}."
            ))
        })
    }

    /// Connects to the queue. With `in_background`, returns at once.
    pub(super) async fn connect(
        &self,
        host: &Host,
        session: &Session<'_>,
        in_background: bool,
    ) -> Result<JobQueue, HostError> {
        let authenticator = authenticator(host, session)?;
        JobQueue::connect(&self.login, authenticator, self.settings.clone(), in_background).await
    }
}

/// Returns the key of the cluster's jobs, which all hosts derive from the same `host.key`.
fn authenticator(host: &Host, session: &Session<'_>) -> Result<JobAuthenticator, HostError> {
    let identity = host.audit().key()?.to_string();
    let key = host_key::load_or_create(&session.home()?.join("host.key")).map_err(|error| {
        HostError::new(HostErrorKind::Configuration, format!("Jobs cannot be authenticated: {error}."))
            .with_hint("All hosts of a cluster have the same host.key, which its owner alone can read.")
    })?;
    Ok(JobAuthenticator::new(&key, &identity))
}

/// Returns the settings for TLS to NATS: the authorities that connectors' connections trust, too.
fn tls(config: &ConfigFile) -> Result<rustls::ClientConfig, HostError> {
    let mut roots = rustls::RootCertStore::empty();
    match config.roots {
        RootCertificates::Platform => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        RootCertificates::Bundled => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    for path in &config.extra_roots {
        // Read and checked already: what is no certificate is refused there, with the file's name.
        let pem = read_roots(path)?;
        roots.add_parsable_certificates(roots_from_pem(&pem).unwrap_or_default());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| {
        HostError::new(HostErrorKind::Internal, "TLS to NATS cannot be set up.").with_source(error)
    })?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the host's name in the cluster.
pub(super) fn host_name(session: &Session<'_>) -> Result<String, HostError> {
    let host = ConfigFile::load(&session.home()?)?.cluster.host;
    Ok(host.unwrap_or_else(|| "localhost".to_owned()))
}

/// Returns the service of jobs over a queue.
pub(super) fn service(queue: JobQueue, host: Host, metrics: Arc<JobMetrics>) -> Jobs {
    Jobs::new(queue, host, metrics, telemetry::job_trace())
}

/// The metrics of one process: those of its calls and those of its jobs.
#[derive(Clone)]
pub(super) struct ProcessMetrics {
    pub(super) calls: Arc<Metrics>,
    pub(super) jobs: Arc<JobMetrics>,
}

impl ProcessMetrics {
    pub(super) fn new(host_name: &str) -> Self {
        Self { calls: Arc::new(Metrics::new()), jobs: Arc::new(JobMetrics::new(host_name)) }
    }

    /// Returns both as one text.
    pub(super) fn text(&self) -> MetricsText {
        let own = self.clone();
        Arc::new(move || {
            let calls = own.calls.encode();
            // Each text ends with a mark, and there is one end.
            let calls = calls.strip_suffix("# EOF\n").unwrap_or(&calls);
            (Metrics::CONTENT_TYPE, format!("{calls}{}", own.jobs.encode()))
        })
    }
}

/// Has the host look at its parts once, so that what a call would need and is missing is logged before the first one.
pub(super) fn check_parts(host: &Host) {
    let host = host.clone();
    // The check may wait for a database. The start of the process does not wait for the check.
    drop(std::thread::Builder::new().name("cofferdam-parts".to_owned()).spawn(move || host.missing_parts()));
}

/// The readiness of a server or a worker: its host, and its queue if it has one.
pub(super) struct HostReadiness {
    pub(super) host: Host,
    pub(super) queue: Option<JobQueue>,
}

impl ReadinessCheck for HostReadiness {
    fn missing(&self) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + '_>> {
        Box::pin(async {
            let host = self.host.clone();
            let parts = tokio::task::spawn_blocking(move || host.missing_parts()).await;
            let mut missing: Vec<String> =
                parts.unwrap_or_else(|_| vec!["host"]).into_iter().map(str::to_owned).collect();
            if let Some(queue) = &self.queue
                && !queue.is_ready().await
            {
                missing.push("queue of jobs".to_owned());
            }
            missing
        })
    }
}
