//! A real NATS server and a host without connectors, for the tests of the queue.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, Message};
use cofferdam_runtime::host::Host;
use cofferdam_sandbox::Compiler;
use cofferdam_server::http_api::JobRequest;
use cofferdam_server::server::Shutdown;
use cofferdam_test_support::services::{Nats, Tools};
use futures_util::StreamExt as _;
use jiff::Timestamp;
use tempfile::TempDir;

use super::super::authentication::JobAuthenticator;
use super::super::message::JobMessage;
use super::super::metrics::JobMetrics;
use super::super::queue::JobQueue;
use super::super::service::Jobs;
use super::super::settings::{JobSettings, NatsLogin};
use super::super::worker::{Worker, WorkerSettings};

/// A call of a connector that no host has.
const CALL: &str = r#"{"call":{"connector":"github://acme/a@1.0.0","op":"run","args":{}}}"#;

pub(in crate::jobs) struct Stage {
    pub(in crate::jobs) nats: Nats,
    pub(in crate::jobs) queue: JobQueue,
    pub(in crate::jobs) host: Host,
    _home: TempDir,
}

pub(in crate::jobs) fn authenticator() -> JobAuthenticator {
    JobAuthenticator::new(&[7; 32], "identity")
}

pub(in crate::jobs) fn login(url: &str) -> NatsLogin {
    NatsLogin::parse("nats", url, false).unwrap()
}

/// The servers of this machine; none where they are not installed, which is said.
pub(in crate::jobs) fn tools() -> Option<Tools> {
    match Tools::find() {
        Ok(tools) => Some(tools),
        Err(why) => {
            assert!(!Tools::required(), "COFFERDAM_REQUIRE_SERVICES is set, and {why}");
            eprintln!("skipped: {why}");
            None
        }
    }
}

/// A host without connectors in a home of its own.
pub(in crate::jobs) fn host() -> (Host, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let host = Host::builder().home(home.path()).compiler(Compiler::in_process()).build().unwrap();
    (host, home)
}

impl Stage {
    pub(in crate::jobs) async fn start() -> Option<Self> {
        let nats = Nats::start(&tools()?);
        let queue = queue(&nats, JobSettings::default()).await;
        let (host, home) = host();
        Some(Self { nats, queue, host, _home: home })
    }

    pub(in crate::jobs) fn jobs(&self) -> Jobs {
        Jobs::new(self.queue.clone(), self.host.clone(), Arc::new(JobMetrics::new("stage")), None)
    }

    pub(in crate::jobs) fn worker(&self, name: &str) -> Worker {
        let settings = WorkerSettings {
            name: name.to_owned(),
            concurrency: 1,
            max_interruptions: 5,
            grace: Duration::from_secs(1),
        };
        let metrics = Arc::new(JobMetrics::new(name));
        Worker::new(self.queue.clone(), self.host.clone(), settings, metrics, None, Shutdown::new())
    }

    /// A job that was submitted so long ago.
    pub(in crate::jobs) fn job(&self, key: &str, age: Duration) -> JobMessage {
        let request = JobRequest::read(CALL.as_bytes()).unwrap();
        let at = Timestamp::now() - age;
        JobMessage::new(&authenticator(), key.to_owned(), "host", request, None, at)
    }

    /// Returns JetStream, as an operator has it.
    pub(in crate::jobs) fn stream(&self) -> &jetstream::Context {
        self.queue.connection().context()
    }

    pub(in crate::jobs) fn stream_name(&self, part: &str) -> String {
        format!("cofferdam_{}_{part}", authenticator().cluster())
    }

    /// Takes the next message, which is there.
    pub(in crate::jobs) async fn next(&self) -> Message {
        let consumer = self.queue.consumer().await.unwrap();
        let mut batch =
            consumer.fetch().max_messages(1).expires(Duration::from_secs(10)).messages().await.unwrap();
        batch.next().await.expect("a message").unwrap()
    }
}

pub(in crate::jobs) async fn queue(nats: &Nats, settings: JobSettings) -> JobQueue {
    JobQueue::connect(&login(&nats.url()), authenticator(), settings, false).await.unwrap()
}
