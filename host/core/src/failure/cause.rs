//! The cause of a failure in the few categories that decide whether it is retried, counts for a circuit, or
//! triggers a fallback.

/// The cause of a failure as observed by the host itself. A mere claim of a connector is
/// [`Other`](Self::Other).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureCause {
    /// No response: DNS, connecting, TLS, or a broken connection.
    Network,
    /// Status 408 or 425.
    Timeout,
    /// Status 429.
    RateLimited,
    /// Status 5xx.
    Unavailable,
    /// Status 401.
    Auth,
    /// Status 402.
    PaymentRequired,
    /// Status 404.
    NotFound,
    /// The connector reports a transient failure of its operation.
    Transient,
    /// The issuer of tokens could not be reached.
    RefreshUnreachable,
    /// The time limit of one attempt, or of the call, has passed.
    WallTime,
    /// The circuit to the host is open: nothing was sent there.
    CircuitOpen,
    /// Everything else, which is never retried.
    Other,
}

impl FailureCause {
    /// Every cause, in the order of their discriminants.
    pub const ALL: [Self; 12] = [
        Self::Network,
        Self::Timeout,
        Self::RateLimited,
        Self::Unavailable,
        Self::Auth,
        Self::PaymentRequired,
        Self::NotFound,
        Self::Transient,
        Self::RefreshUnreachable,
        Self::WallTime,
        Self::CircuitOpen,
        Self::Other,
    ];

    /// Returns the stable name, which `retry_on` and the audit log use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network_error",
            Self::Timeout => "timeout",
            Self::RateLimited => "rate_limited",
            Self::Unavailable => "unavailable",
            Self::Auth => "auth",
            Self::PaymentRequired => "payment_required",
            Self::NotFound => "not_found",
            Self::Transient => "op_failed",
            Self::RefreshUnreachable => "refresh_unreachable",
            Self::WallTime => "wall_time",
            Self::CircuitOpen => "circuit_open",
            Self::Other => "other",
        }
    }

    /// Returns whether a policy may retry an attempt with this cause. The envelope of `wall_time` says that
    /// it is not retriable, and only a policy that names it retries it.
    #[must_use]
    pub const fn is_retriable(self) -> bool {
        matches!(
            self,
            Self::Network
                | Self::Timeout
                | Self::RateLimited
                | Self::Unavailable
                | Self::Transient
                | Self::RefreshUnreachable
                | Self::WallTime
        )
    }

    /// Returns the cause of a response with this status.
    #[must_use]
    pub const fn from_status(status: u16) -> Self {
        match status {
            401 => Self::Auth,
            402 => Self::PaymentRequired,
            404 => Self::NotFound,
            408 | 425 => Self::Timeout,
            429 => Self::RateLimited,
            500..=599 => Self::Unavailable,
            _ => Self::Other,
        }
    }
}
