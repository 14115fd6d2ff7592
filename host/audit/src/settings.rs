//! The settings of an audit log.

use std::time::Duration;

/// The maximum wait for another process that holds a file, before an error is returned.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The events that an audit log survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The end of the process, at any instant and however hard. After a power cut the last moments may be missing.
    #[default]
    Process,
    /// A power cut: every commit is on the disk before it is reported.
    Power,
}

impl Durability {
    /// The stable word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Power => "power",
        }
    }
}

/// The most bytes of sealed requests and outcomes that are kept, to be done or given again. Above it those of the oldest
/// calls that have ended are dropped; the calls stay in the log, and their idempotency keys stay taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedQuota {
    /// Of one client: of the calls of one actor. Default: 256 MiB.
    pub per_client: u64,
    /// Of all clients. Above it, the client with the most bytes loses its oldest. Default: 1 GiB.
    pub in_all: u64,
}

impl Default for SealedQuota {
    fn default() -> Self {
        Self { per_client: 256 << 20, in_all: 1 << 30 }
    }
}

/// The settings of an audit log.
#[derive(Debug, Clone, Default)]
pub struct LogSettings {
    /// The durability. Default: [`Durability::Process`].
    pub durability: Durability,
    /// The retention of calls; none to store them until they are pruned by hand. Default: none.
    pub retention: Option<Duration>,
    /// The most sealed bytes that it keeps. Default: 256 MiB for one client, 1 GiB in all.
    pub sealed: SealedQuota,
}
