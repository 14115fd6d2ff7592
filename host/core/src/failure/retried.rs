//! The one thing that may be added to a failure after it was made: what the pipeline did about it.

use std::time::Duration;

use serde_json::{Map, Value};

use super::envelope::Failure;

/// Why a failure that might have been repeated was not, or not again (`details.retry_stopped`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryStopped {
    /// Every attempt that the policy allows was made.
    MaxAttempts,
    /// The next wait could not have ended within the call's wall time.
    WallTime,
    /// The circuit to the host opened, or this was the one request that tried it.
    CircuitOpen,
    /// What admitted the first attempt no longer did: the connector was removed, its key revoked.
    NotAdmitted,
    /// As many calls wait between attempts, or for a turn, as the host takes.
    Busy,
    /// It sent a request that may take effect each time it arrives, and its manifest does not declare the operation
    /// idempotent. Also why it was not handed to a fallback.
    NotDeclaredIdempotent,
}

impl RetryStopped {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::MaxAttempts,
        Self::WallTime,
        Self::CircuitOpen,
        Self::NotAdmitted,
        Self::Busy,
        Self::NotDeclaredIdempotent,
    ];

    /// The stable word in `details.retry_stopped`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxAttempts => "max_attempts",
            Self::WallTime => "wall_time",
            Self::CircuitOpen => "circuit_open",
            Self::NotAdmitted => "not_admitted",
            Self::Busy => "busy",
            Self::NotDeclaredIdempotent => "not_declared_idempotent",
        }
    }
}

impl Failure {
    /// Adds how often the call was retried, why not again, and how long the next wait would have been. Class,
    /// message and `retriable` stay what they were.
    #[must_use]
    pub(crate) fn with_retries(
        mut self,
        retried: u32,
        stopped: Option<RetryStopped>,
        retry_after: Option<Duration>,
    ) -> Self {
        let unrepeatable =
            self.unrepeatable().filter(|_| stopped == Some(RetryStopped::NotDeclaredIdempotent));
        let unrepeatable = unrepeatable.cloned();
        let details = self.details_mut();
        if let Some(unrepeatable) = unrepeatable {
            unrepeatable.describe(details);
        }
        if retried > 0 || stopped.is_some() {
            details.insert("retried".into(), retried.into());
        }
        if let Some(stopped) = stopped {
            details.insert("retry_stopped".into(), stopped.name().into());
        }
        if let Some(wait) = retry_after {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            details.insert("retry_after_ms".into(), ms.into());
        }
        self
    }

    /// Says whether any request of any attempt of the call may have left.
    #[must_use]
    pub(crate) fn with_request_sent(mut self, sent: bool) -> Self {
        self.details_mut().insert("request_sent".into(), sent.into());
        self
    }

    /// Adds why it was not admitted again: class, code and message of what refused it.
    #[must_use]
    pub(crate) fn with_refusal(mut self, refusal: Map<String, Value>) -> Self {
        self.details_mut().insert(RetryStopped::NotAdmitted.name().into(), refusal.into());
        self
    }

    /// Adds the candidates of a chain that was tried to its end, each with what came of it.
    #[must_use]
    pub(crate) fn with_chain(mut self, chain: Vec<Map<String, Value>>) -> Self {
        self.details_mut().insert("chain".into(), chain.into_iter().map(Value::Object).collect());
        self
    }
}
