//! Statistics of many calls: their number by outcome, and their durations.

use jiff::Timestamp;

use super::command::CallStatus;
use super::histogram::Histogram;

/// The counts of the calls that a filter let through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Received at or after: the beginning of an hour; none where all are counted.
    pub since: Option<Timestamp>,
    /// Received before: the beginning of an hour.
    pub until: Option<Timestamp>,
    /// The calls that ended, by connector, status and class, the most first.
    pub groups: Vec<StatsGroup>,
    /// Those that have no end, and whose host lives.
    pub running: u64,
    /// Those that have no end, and whose host is gone.
    pub incomplete: u64,
}

/// The calls of one connector that ended one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsGroup {
    /// The connector, as `name@version`.
    pub connector: String,
    /// Their outcomes.
    pub status: CallStatus,
    /// The failures' class.
    pub class: Option<String>,
    /// The number of values.
    pub calls: u64,
    /// The durations. Calls that were resolved by a decision have none.
    pub durations: Histogram,
}

/// The bytes that are sealed for one client.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SealedUsage {
    /// The actor of its calls.
    pub client: String,
    /// The bytes of its sealed requests and outcomes.
    pub bytes: u64,
}

impl Stats {
    /// The calls that ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.groups.iter().map(|group| group.calls).sum()
    }

    /// Returns the durations of all of them.
    #[must_use]
    pub fn durations(&self) -> Histogram {
        let mut all = Histogram::default();
        self.groups.iter().for_each(|group| all.merge(&group.durations));
        all
    }
}
