//! Traces of attempts, for the developer of a connector: every host call, request and log line with its time.
//!
//! A trace has the contents of requests and responses. Secrets that the host knows, values that look like secrets, and
//! fields and parameters whose names say that they are personal are replaced. It is kept in memory only.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::event::recorded::RecordedRequest;
use crate::limits::Usage;

/// The most host calls of an attempt that its trace has. Later ones are counted.
pub const HOST_CALLS: usize = 20_000;

/// Collects the traces of a call's attempts. Cheap to clone; all clones share one list.
#[derive(Debug, Clone, Default)]
pub struct TraceCollector(Arc<Mutex<Vec<AttemptTrace>>>);

impl TraceCollector {
    /// Adds the trace of an attempt that has ended.
    pub fn add(&self, attempt: AttemptTrace) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(attempt);
    }

    /// Returns the attempts until now, in the order of their ends, and removes them.
    #[must_use]
    pub fn take(&self) -> Vec<AttemptTrace> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One attempt. All times count from its start.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttemptTrace {
    /// The number of the attempt within the call, from 1.
    pub attempt: u32,
    /// The time of its start.
    pub started: Timestamp,
    /// The time until its instance existed, and the guest's code began.
    pub instantiated_after: Duration,
    /// The used resources, and their limits; none if the attempt was given up before its end.
    pub usage: Option<Usage>,
    /// The calls of the guest into the host, in order, but for drops of resources: at most [`HOST_CALLS`].
    pub host_calls: Vec<TracedHostCall>,
    /// The number of further ones.
    pub omitted_host_calls: u64,
    /// The requests, in the order in which the guest sent them.
    pub requests: Vec<TracedRequest>,
    /// The guest's log lines, as they are in the audit log.
    pub log: Vec<TracedLogLine>,
    /// The end of what the guest wrote on standard output: up to 2,000 characters of whole lines.
    pub stdout: Option<String>,
    /// The end of what it wrote on standard error.
    pub stderr: Option<String>,
    /// The class and the code of its failure, like `connector_runtime_error.trap`; or the code of the host's own error.
    pub failure: Option<String>,
    /// The functions that the guest was in when it was ended by a trap, the innermost first, if the host was built for
    /// debugging guests.
    pub frames: Vec<String>,
}

impl AttemptTrace {
    /// Creates the trace of an attempt of which nothing is known yet.
    #[must_use]
    pub fn new(attempt: u32, started: Timestamp) -> Self {
        Self {
            attempt,
            started,
            instantiated_after: Duration::ZERO,
            usage: None,
            host_calls: Vec::new(),
            omitted_host_calls: 0,
            requests: Vec::new(),
            log: Vec::new(),
            stdout: None,
            stderr: None,
            failure: None,
            frames: Vec::new(),
        }
    }
}

/// One call of the guest into the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedHostCall {
    /// The interface and the function, like `streams.[method]input-stream.read`.
    pub function: String,
    /// The time of its start.
    pub at: Duration,
    /// The time that it took, waits included.
    pub took: Duration,
    /// The fuel that the attempt had used when it began.
    pub fuel: u64,
}

/// One request of the guest.
#[derive(Debug, Clone)]
pub struct TracedRequest {
    /// The request as the audit log has it.
    pub request: RecordedRequest<'static>,
    /// The time of its start.
    pub at: Duration,
    /// The time until the end of the response, or the failure.
    pub took: Duration,
    /// Its contents; empty for a request that was refused.
    pub content: TracedContent,
}

/// The contents of a request and its response, as far as the trace has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedContent {
    /// The query of its URL, without `?`.
    pub query: String,
    /// The request's header fields as the guest set them, in order. Credentials are added later, by the host.
    pub request_headers: Vec<(String, String)>,
    /// The beginning of the request's body.
    pub request_body: String,
    /// The response's header fields, in order.
    pub response_headers: Vec<(String, String)>,
    /// The beginning of the response's body.
    pub response_body: String,
}

/// One log line of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedLogLine {
    /// The time.
    pub at: Duration,
    /// The level's name.
    pub level: String,
    /// The text.
    pub text: String,
}
