//! The settings of the queue and of the connection to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use percent_encoding::percent_decode_str;
use tracing::Span;
use url::{Host, Url};

/// The default bound of waiting jobs.
const JOBS: u64 = 100_000;

/// The default bound of the bytes of waiting jobs.
const BYTES: u64 = 1 << 30;

/// The bound of dead letters. If it is reached, jobs stay in the queue instead.
pub(super) const DEAD_LETTERS: u64 = 10_000;

/// The most bytes of a job: a message of NATS has 1 MiB, headers included.
pub(super) const JOB_BYTES: usize = 900 * 1024;

/// The settings of the queue. All hosts of a cluster have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSettings {
    /// The most jobs that wait or run at once; a further one is refused as busy.
    pub max_jobs: u64,
    /// The most bytes of those jobs.
    pub max_bytes: u64,
    /// The number of servers that keep each message.
    pub replicas: usize,
    /// The time after which a job is delivered again whose worker says nothing.
    pub ack_wait: Duration,
    /// The time for which a finished job is known.
    pub keep: Duration,
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            max_jobs: JOBS,
            max_bytes: BYTES,
            replicas: 1,
            ack_wait: Duration::from_secs(10),
            keep: Duration::from_secs(7 * 24 * 60 * 60),
        }
    }
}

/// The address of NATS and the login.
#[derive(Clone)]
pub struct NatsLogin {
    url: Url,
    user: Option<String>,
    password: Option<Arc<Secret>>,
    tls: Option<rustls::ClientConfig>,
}

impl fmt::Debug for NatsLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsLogin").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl NatsLogin {
    /// Reads an address like `nats://user:password@nats.corp:4222` or `tls://nats.corp:4222`. `source` names the setting,
    /// for errors. Without TLS, an address beyond loopback needs leave.
    ///
    /// # Errors
    /// `configuration`: it is no such address, or may not be reached in plain text. The error contains nothing of it.
    pub fn parse(source: &str, text: &str, allow_plain_text: bool) -> Result<Self, HostError> {
        let wrong = |what: &str, hint: &str| {
            HostError::new(HostErrorKind::Configuration, format!("{source}: {what}.")).with_hint(hint)
        };
        let form = "Write it like nats://127.0.0.1:4222 or tls://nats.corp:4222.";
        let mut url = Url::parse(text.trim()).map_err(|_| wrong("it is not an address of NATS", form))?;
        if !matches!(url.scheme(), "nats" | "tls") || url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it is not an address of NATS", form));
        }
        // `url` parses the host of an unknown scheme as text.
        let host =
            url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            || matches!(url.host(), Some(Host::Ipv4(address)) if address.is_loopback());
        if url.scheme() == "nats" && !is_loopback && !allow_plain_text {
            let hint = "Write tls:// in place of nats://; or set nats_plain_text = true in [cluster], where nobody else can read the network.";
            return Err(wrong("NATS would be reached in plain text, beyond this machine", hint));
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = Some(url.username()).filter(|user| !user.is_empty()).map(decoded);
        let password = url.password().map(|password| Arc::new(Secret::new(decoded(password))));
        // The address is shown in errors; the login is not.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        Ok(Self { url, user, password, tls: None })
    }

    /// Logs in with this password in place of the address's.
    #[must_use]
    pub fn with_password(mut self, password: Secret) -> Self {
        self.password = Some(Arc::new(password));
        self
    }

    /// Uses these settings for TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: rustls::ClientConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Returns true if the connection has TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.url.scheme() == "tls"
    }

    /// Returns the address, without the login.
    pub(super) fn address(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the options of the connection.
    pub(super) fn options(&self) -> async_nats::ConnectOptions {
        let mut options = async_nats::ConnectOptions::new().name("cofferdam");
        if let (Some(user), Some(password)) = (&self.user, &self.password) {
            options = options.user_and_password(user.clone(), password.expose().to_owned());
        } else if let Some(token) = &self.user {
            options = options.token(token.clone());
        }
        if self.has_tls() {
            options = options.require_tls(true);
        }
        match &self.tls {
            Some(tls) => options.tls_client_config(tls.clone()),
            None => options,
        }
    }
}

/// The link between spans and a trace that other processes continue.
pub trait JobTrace: Send + Sync + 'static {
    /// Returns the W3C `traceparent` of this span; none if nothing is traced.
    fn traceparent(&self, span: &Span) -> Option<String>;

    /// Makes the span a child of the one that this W3C `traceparent` names.
    fn follow(&self, span: &Span, traceparent: &str);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::NatsLogin;

    #[test]
    fn plain_text_beyond_loopback_needs_leave() {
        let parse = |text: &str, leave: bool| NatsLogin::parse("nats", text, leave);
        for (text, leave) in [
            ("nats://127.0.0.1:4222", false),
            ("nats://localhost", false),
            ("nats://[::1]:4222", false),
            ("tls://nats.corp:4222", false),
            ("nats://nats.corp:4222", true),
        ] {
            assert!(parse(text, leave).is_ok(), "{text}");
        }
        for text in ["nats://nats.corp:4222", "nats://10.0.0.1", "nats://127.0.0.1.corp"] {
            let error = parse(text, false).unwrap_err();
            assert!(error.message().contains("plain text"), "{text}: {error}");
        }
    }

    #[test]
    fn a_login_is_in_no_message() {
        let login = NatsLogin::parse("nats", "nats://worker:hunter2@localhost:4222", false).unwrap();
        assert!(!format!("{login:?}").contains("hunter2") && !login.address().contains("hunter2"));
        for text in ["hunter2", "http://hunter2", "nats://"] {
            let error = NatsLogin::parse("COFFERDAM_NATS_URL", text, false).unwrap_err();
            assert!(!error.message().contains("hunter2") && error.message().contains("COFFERDAM_NATS_URL"));
        }
    }
}
