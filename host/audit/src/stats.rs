//! Statistics of many calls: their number by outcome, and their durations.

use jiff::Timestamp;

use super::command::CallStatus;
use super::histogram::Histogram;
use super::index::RESOURCES;
use super::named_enum::named_enum;

/// The counts of the calls that a filter let through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Received at or after: the beginning of an hour; none where all are counted.
    pub since: Option<Timestamp>,
    /// Received before: the beginning of an hour.
    pub until: Option<Timestamp>,
    /// The calls that ended, by what the query groups them by, and by status and class; the most first.
    pub groups: Vec<StatsGroup>,
    /// Those that have no end, and whose host lives.
    pub running: u64,
    /// Those that have no end, and whose host is gone.
    pub incomplete: u64,
}

/// The statistics that are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatsQuery {
    /// The fact by which the calls are grouped.
    pub by: StatsGrouping,
    /// True if the used resources are counted as well.
    pub usage: bool,
}

named_enum! {
    /// The property of calls by which statistics are grouped.
    #[derive(Default)]
    pub enum StatsGrouping {
        /// The connector, as `name@version`.
        #[default]
        Connector = "connector",
        /// The connector and the operation, with a space between them.
        Operation = "operation",
        /// The host of a request. A call with requests to several hosts is counted for each of them, one without
        /// requests for none.
        Host = "host",
        /// The failure's or the error's code; empty for calls with a value.
        Code = "code",
        /// The actor.
        Actor = "actor",
        /// The layer that a failure came from; empty for calls without a failure, and where it is not known.
        Boundary = "boundary",
    }
}

named_enum! {
    /// The length of the steps of a history.
    #[derive(Default)]
    pub enum HistoryStep {
        /// An hour.
        #[default]
        Hour = "hour",
        /// A day, in UTC.
        Day = "day",
    }
}

impl HistoryStep {
    /// Returns the length in seconds.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        match self {
            Self::Hour => 60 * 60,
            Self::Day => 24 * 60 * 60,
        }
    }

    /// Returns the beginning of the step that `at` is in.
    #[must_use]
    pub fn begin(self, at: Timestamp) -> Timestamp {
        let start = at.as_second().div_euclid(self.seconds()).saturating_mul(self.seconds());
        Timestamp::from_second(start).unwrap_or(at)
    }
}

/// The part of the log that a history is of: whole steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryQuery {
    /// A time in the first step.
    pub since: Timestamp,
    /// The end of the last step, or a time in it.
    pub until: Timestamp,
    /// The length of each step.
    pub step: HistoryStep,
}

impl HistoryQuery {
    /// Returns the beginnings of all steps, in order.
    pub fn starts(self) -> impl Iterator<Item = Timestamp> {
        let Self { since, until, step } = self;
        let next = move |start: &Timestamp| {
            Timestamp::from_second(start.as_second().saturating_add(step.seconds())).ok()
        };
        std::iter::successors(Some(step.begin(since)), next).take_while(move |start| *start < until)
    }
}

/// The calls that were received in one step of a history, and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPart {
    /// The beginning of the step.
    pub start: Timestamp,
    /// The calls by boundary, status and class, without their usage.
    pub groups: Vec<StatsGroup>,
}

/// The space that an audit log uses, and the age of what is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogStorage {
    /// The bytes of entries.
    pub entries_bytes: u64,
    /// The bytes of sealed requests and outcomes.
    pub sealed_bytes: u64,
    /// The bytes of the index.
    pub index_bytes: u64,
    /// The bytes of everything else: checkpoints, idempotency keys.
    pub other_bytes: u64,
    /// The time at which the oldest call was received.
    pub oldest: Option<Timestamp>,
    /// The time at which old calls were last looked for.
    pub retained: Option<Timestamp>,
}

impl LogStorage {
    /// Returns the bytes of all parts.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let Self { entries_bytes, sealed_bytes, index_bytes, other_bytes, .. } = self;
        [entries_bytes, sealed_bytes, index_bytes, other_bytes]
            .into_iter()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The calls of one connector, or of another common property, that ended one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatsGroup {
    /// The connector, or the other property that the query groups by.
    pub name: String,
    /// Their outcomes.
    pub status: CallStatus,
    /// The failures' class.
    pub class: Option<String>,
    /// The number of calls.
    pub calls: u64,
    /// The durations. Calls that were resolved by a decision have none.
    pub durations: Histogram,
    /// The used resources, if they are asked for.
    pub usage: Option<UsageStats>,
}

/// The resources that attempts of ended calls used, and the largest limit of each, in the order of
/// [`AttemptUsage`](crate::store::AttemptUsage).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageStats {
    /// The amounts.
    pub used: [Histogram; RESOURCES],
    /// The limits.
    pub limits: [u64; 3],
}

/// The bytes that are sealed for one client.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
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
}
