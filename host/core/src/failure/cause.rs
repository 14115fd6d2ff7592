//! What went wrong in the few words that decide what is done about it: repeated, held against a host, passed on.

/// The cause of a failure, as far as the host itself observed it. What a connector only claims is [`Other`](Self::Other).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// No answer: DNS, connecting, TLS, or a connection that broke off.
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
    /// The connector says that its operation failed in a way that may pass.
    Transient,
    /// The issuer of tokens could not be asked.
    RefreshUnreachable,
    /// The time for one attempt, or for the call, was over.
    WallTime,
    /// The circuit to the host is open: nothing was sent there.
    CircuitOpen,
    /// Everything else; nothing is ever done about it.
    Other,
}

impl Cause {
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

    /// The stable word: what `retry_on` names, and records say.
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

    /// Whether a policy may repeat an attempt that ended so. Of `wall_time` the envelope says that it is not
    /// retriable, and only a policy that names it repeats it.
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

    /// What an answer with this status is.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
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
