//! The answers that clients got.

use serde::{Deserialize, Serialize};

/// One request of a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchange {
    /// The idempotency key.
    pub key: String,
    /// `call`, `action`, `submit` or `job`.
    pub by: String,
    /// The host that was asked.
    pub host: usize,
    /// When the request was sent, in microseconds since the beginning of the run.
    pub sent: u64,
    /// When the answer was read completely, or its absence was noticed.
    pub answered: u64,
    /// The answer.
    pub answer: Answer,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// A value.
    Value {
        /// The JSON text of the value, as it was received.
        text: String,
        /// The call in the audit log.
        audit_id: String,
        /// The earlier call whose outcome this is.
        replayed: Option<String>,
    },
    /// A failure of the call.
    Failure {
        /// The class.
        class: String,
        /// The code.
        code: String,
        /// True if the caller may repeat the call.
        retriable: bool,
        /// The call in the audit log.
        audit_id: String,
        /// The earlier call whose outcome this is.
        replayed: Option<String>,
    },
    /// An error of the host, which is no outcome.
    Error {
        /// The code.
        code: String,
        /// The call that the error is about, if it names one.
        call: Option<String>,
        /// The id of the request, which is that of a call if one was begun.
        request_id: Option<String>,
    },
    /// A job was accepted; it is to run.
    Accepted {
        /// The id of the job.
        job: String,
    },
    /// A job has no outcome yet.
    Pending {
        /// The state that was reported.
        state: String,
    },
    /// The connection ended without an answer.
    Lost {
        /// The error.
        reason: String,
    },
}
