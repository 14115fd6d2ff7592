//! The connection to NATS, and requests to JetStream whose errors are told apart.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream::{ConsumerErrorKind, LastRawMessageErrorKind};
use async_nats::{Client, ConnectError, ConnectErrorKind, Event, HeaderMap, jetstream};
use bytes::Bytes;
use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Deserialize;
use tokio::sync::watch;

use super::settings::NatsLogin;

/// The time of one request. A longer one would outlive the requests of HTTP clients.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The longest wait of a request for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(1);

/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A connection to NATS, which is made again whenever it breaks.
#[derive(Clone)]
pub(super) struct NatsConnection {
    client: Client,
    context: jetstream::Context,
    /// The number of times that the connection was made.
    connected: watch::Receiver<u64>,
    address: Arc<str>,
    /// The reason why the first attempt to connect failed, and what to do; for commands, which do not wait for NATS.
    failed: Option<Arc<(String, &'static str)>>,
    /// True if a request has found that a stream is gone.
    has_lost_streams: Arc<AtomicBool>,
}

/// The reason why JetStream did not take a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PublishFault {
    /// The stream is as full as it may be. Nothing was stored.
    Full,
    /// Another message with this subject was stored meanwhile. Nothing was stored.
    Outdated,
    /// The message is too large. Nothing was stored.
    TooLarge,
    /// There is no such stream. Nothing was stored.
    NoStream,
    /// There is no answer, or it is another error. The message may have been stored.
    Unknown(String),
}

/// The acknowledgement of a stored message.
#[derive(Debug, Deserialize)]
pub(super) struct Stored {
    #[serde(rename = "seq")]
    pub(super) sequence: u64,
    #[serde(default)]
    pub(super) duplicate: bool,
}

#[derive(Deserialize)]
struct PublishAnswer {
    error: Option<AnswerError>,
    #[serde(flatten)]
    stored: Option<Stored>,
}

#[derive(Deserialize)]
struct AnswerError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl NatsConnection {
    /// Connects. With `in_background`, returns at once and connects as soon as that is possible. Otherwise waits for
    /// the first attempt; if it fails, every request fails with its cause until a later one succeeds.
    ///
    /// # Errors
    /// `queue_unavailable`: the address cannot be used.
    pub(super) async fn connect(login: &NatsLogin, in_background: bool) -> Result<Self, HostError> {
        let (made, connected) = watch::channel(0_u64);
        // The attempts go on: each reason is logged once.
        let last = Arc::new(Mutex::new(String::new()));
        let options = || {
            let (made, last) = (made.clone(), Arc::clone(&last));
            login
                .options()
                .connection_timeout(TIMEOUT)
                .request_timeout(Some(TIMEOUT))
                .reconnect_delay_callback(|attempts| {
                    let ms = 50_u64.saturating_mul(1 << attempts.min(6));
                    Duration::from_millis(ms).min(LONGEST_PAUSE)
                })
                .event_callback(move |event| {
                    match event {
                        Event::Connected => made.send_modify(|count| *count += 1),
                        Event::Disconnected => {
                            tracing::warn!(
                                target: "cofferdam::jobs",
                                "the connection to NATS is lost; it is made again"
                            );
                        }
                        Event::ClientError(error) if in_background => {
                            let error = error.to_string();
                            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                            if *last != error {
                                tracing::warn!(
                                    target: "cofferdam::jobs", %error,
                                    "NATS is not reached; it is tried again"
                                );
                                *last = error;
                            }
                        }
                        event => tracing::debug!(target: "cofferdam::jobs", %event, "NATS"),
                    }
                    async {}
                })
        };
        let mut failed = None;
        let mut client = None;
        if !in_background {
            match options().connect(login.address()).await {
                Ok(made) => client = Some(made),
                Err(error) => failed = Some(Arc::new(explain(login.address(), &error))),
            }
        }
        let client = match client {
            Some(client) => client,
            None => {
                let client = options().retry_on_initial_connect().connect(login.address()).await;
                client.map_err(|error| {
                    let (message, hint) = explain(login.address(), &error);
                    HostError::new(HostErrorKind::QueueUnavailable, message).with_hint(hint)
                })?
            }
        };
        let mut context = jetstream::new(client.clone());
        context.set_timeout(TIMEOUT);
        let has_lost_streams = Arc::default();
        Ok(Self { client, context, connected, address: login.address().into(), failed, has_lost_streams })
    }

    /// Returns JetStream.
    pub(super) fn context(&self) -> &jetstream::Context {
        &self.context
    }

    /// Returns true if the connection is there.
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Waits a moment for the connection, if it is not there: for the first one of a server that has just begun, and for a
    /// server of NATS that was restarted.
    pub(super) async fn wait_until_connected(&self) -> bool {
        if self.failed.is_some() {
            return self.is_connected();
        }
        let mut connected = self.connected.clone();
        let wait = async {
            while !self.is_connected() {
                // It ends with the client alone.
                if connected.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(CONNECTION_WAIT, wait).await.is_ok() && self.is_connected()
    }

    /// Returns a receiver that sees each time that the connection is made again.
    pub(super) fn reconnections(&self) -> watch::Receiver<u64> {
        self.connected.clone()
    }

    /// Returns the most bytes of a message, headers included.
    pub(super) fn message_bytes(&self) -> usize {
        self.client.max_payload()
    }

    /// Sends what is buffered, for a process that is about to end.
    pub(super) async fn flush(&self) {
        let _ = tokio::time::timeout(TIMEOUT, self.client.flush()).await;
    }

    /// Stores a message, and returns when JetStream has acknowledged it.
    pub(super) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Stored, PublishFault> {
        // A message that waits in the client until the connection is back would be stored after its sender has given up.
        if !self.is_connected() {
            return Err(PublishFault::Unknown("there is no connection".to_owned()));
        }
        let answer = self.client.request_with_headers(subject, headers, payload).await;
        let answer = answer.map_err(|error| match error.kind() {
            async_nats::RequestErrorKind::NoResponders => {
                self.note_lost_streams();
                PublishFault::NoStream
            }
            kind => PublishFault::Unknown(kind.to_string()),
        })?;
        let answer: PublishAnswer = serde_json::from_slice(&answer.payload)
            .map_err(|_| PublishFault::Unknown("its answer is not one of JetStream".to_owned()))?;
        match (answer.error, answer.stored) {
            (None, Some(stored)) => Ok(stored),
            (Some(error), _) => {
                let fault = error.into_fault();
                if fault == PublishFault::NoStream {
                    self.note_lost_streams();
                }
                Err(fault)
            }
            (None, None) => Err(PublishFault::Unknown("its answer is not one of JetStream".to_owned())),
        }
    }

    /// Has the streams looked for, and made, before the next request: one of them is gone.
    pub(super) fn note_lost_streams(&self) {
        self.has_lost_streams.store(true, Ordering::SeqCst);
    }

    /// Returns true if a stream was found to be gone since the last time that this was asked.
    pub(super) fn take_lost_streams(&self) -> bool {
        self.has_lost_streams.swap(false, Ordering::SeqCst)
    }

    /// Returns the error of a message that cannot be read from a stream.
    pub(super) fn unreadable(&self, kind: &LastRawMessageErrorKind) -> HostError {
        match kind {
            LastRawMessageErrorKind::JetStream(error) => self.refused(error),
            kind => self.unavailable(kind),
        }
    }

    /// Returns the error of a consumer that cannot be used.
    pub(super) fn no_consumer(&self, kind: &ConsumerErrorKind) -> HostError {
        match kind {
            ConsumerErrorKind::JetStream(error) => self.refused(error),
            kind => self.unavailable(kind),
        }
    }

    /// Returns the error for an error of JetStream.
    fn refused(&self, error: &jetstream::Error) -> HostError {
        if error.error_code() == ErrorCode::STREAM_NOT_FOUND {
            self.note_lost_streams();
            return self.unavailable("its streams are missing");
        }
        self.unavailable(error)
    }

    /// Returns the error that there is no connection.
    pub(super) fn not_connected(&self) -> HostError {
        match self.failed.as_deref() {
            Some((message, hint)) => {
                HostError::new(HostErrorKind::QueueUnavailable, message.as_str()).with_hint(*hint)
            }
            None => self.unavailable("there is no connection"),
        }
    }

    /// Returns the error that the queue cannot be used, because of `reason`.
    pub(super) fn unavailable(&self, reason: impl std::fmt::Display) -> HostError {
        // Callers get this text: the address is for the operator.
        tracing::debug!(target: "cofferdam::jobs", address = &*self.address, %reason, "the queue cannot be used");
        HostError::new(
            HostErrorKind::QueueUnavailable,
            format!("The queue of jobs cannot be used: {reason}."),
        )
        .with_hint("Try again later. A job is submitted again with the same key: it is one job.")
    }
}

/// Returns the reason why NATS at this address is not reached, and what to do.
fn explain(address: &str, error: &ConnectError) -> (String, &'static str) {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => (
            format!("NATS at {address} refuses the login."),
            "Check the user in `nats` and the password in `nats_password_file`, both in [cluster] of config.toml.",
        ),
        kind => {
            // The innermost error has the reason of the system, like a refused connection.
            let mut cause = error.source();
            while let Some(inner) = cause.and_then(|cause| cause.source()) {
                cause = Some(inner);
            }
            let cause = cause.map_or_else(|| kind.to_string(), ToString::to_string);
            (
                format!("NATS at {address} cannot be reached: {}.", super::authentication::shown(&cause)),
                "Check that it runs, and that `nats` in config.toml or COFFERDAM_NATS_URL names it.",
            )
        }
    }
}

impl AnswerError {
    fn into_fault(self) -> PublishFault {
        match self.err_code {
            // The one code of a store that does not take a message: its bounds, or the disk.
            10077 if self.description.contains("maximum") => PublishFault::Full,
            // The bounds of the account and of the server.
            10002 | 10023 | 10028 | 10047 => PublishFault::Full,
            10054 | 10097 => PublishFault::TooLarge,
            // The second one is without the number.
            10071 | 10164 => PublishFault::Outdated,
            10059 => PublishFault::NoStream,
            code => {
                PublishFault::Unknown(format!("{} ({code})", super::authentication::shown(&self.description)))
            }
        }
    }
}
