//! The only additions to a failure after its creation: what the pipeline did about it.

use std::time::Duration;

use serde_json::{Map, Value};

use super::envelope::Failure;

/// The reason why a failure that could have been retried was not, or not again (`details.retry_stopped`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryStopped {
    /// Every attempt that the policy allows was made.
    MaxAttempts,
    /// The next wait could not have ended within the call's wall time.
    WallTime,
    /// The circuit to the host opened, or this was its probe.
    CircuitOpen,
    /// The candidate is no longer admitted: the connector was removed, or its key revoked.
    NotAdmitted,
    /// The maximum number of calls already waits between attempts, or for a rate limit.
    Busy,
    /// It sent a request that may take effect each time it arrives, and its manifest does not declare the
    /// operation idempotent. The same reason prevents a fallback.
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

    /// Returns the stable name in `details.retry_stopped`.
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
    /// Adds the number of retries, the reason why there was no further one, and the length of the next wait.
    /// Class, message and `retriable` do not change.
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

    /// Records whether any request of any attempt of the call may have left.
    #[must_use]
    pub(crate) fn with_request_sent(mut self, sent: bool) -> Self {
        self.details_mut().insert("request_sent".into(), sent.into());
        self
    }

    /// Adds the reason why it was not admitted again: class, code and message of the rejection.
    #[must_use]
    pub(crate) fn with_refusal(mut self, refusal: Map<String, Value>) -> Self {
        self.details_mut().insert(RetryStopped::NotAdmitted.name().into(), refusal.into());
        self
    }

    /// Adds the candidates of a chain that was tried to its end, each with its outcome.
    #[must_use]
    pub(crate) fn with_chain(mut self, chain: Vec<Map<String, Value>>) -> Self {
        self.details_mut().insert("chain".into(), chain.into_iter().map(Value::Object).collect());
        self
    }
}
