//! The resources that recorded calls of a connector used, compared with its limits.

use cofferdam_audit::{Filter, StatsQuery, UsageStats};
use cofferdam_runtime::host::{Host, PackageInspection};
use serde::Serialize;

use super::shown;

/// A limit is far above the use of calls if they used less than one part of so many.
const FAR_ABOVE: u64 = 10;

/// The fewest attempts from which the use of calls is judged.
const ENOUGH_ATTEMPTS: u64 = 20;

/// The most that an attempt of any version used, by limit.
#[derive(Debug, Clone, Serialize)]
pub(in super::super) struct LimitUsage {
    attempts: u64,
    fuel: u64,
    memory_bytes: u64,
    wall_time_ms: u64,
}

impl LimitUsage {
    /// Reads the use of the calls of `connector`. None without attempts, and if the audit log cannot be read.
    pub(in super::super) fn of(host: &Host, connector: &str) -> Option<Self> {
        let mut log = host.audit().existing().ok().flatten()?;
        let filter = Filter { connector: Some(connector.to_owned()), ..Filter::default() };
        let stats = log.stats(&filter, StatsQuery { usage: true, ..StatsQuery::default() }).ok()?;
        let mut all = UsageStats::default();
        stats.groups.iter().filter_map(|group| group.usage.as_ref()).for_each(|usage| all.merge(usage));
        let [fuel, memory_bytes, wall_us, ..] = &all.used;
        Some(Self {
            attempts: fuel.count(),
            fuel: fuel.max()?,
            memory_bytes: memory_bytes.max()?,
            wall_time_ms: wall_us.max()?.div_ceil(1_000),
        })
    }

    /// The number of attempts.
    pub(in super::super) fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Returns the most that an attempt used of the limit `name`, in the unit of the limit.
    pub(in super::super) fn most(&self, name: &str) -> u64 {
        match name {
            "fuel" => self.fuel,
            "memory" => self.memory_bytes,
            _ => self.wall_time_ms,
        }
    }

    /// Returns the limits that the manifest asks for and that no attempt came near, as sentences.
    pub(in super::super) fn idle_limits(&self, package: &PackageInspection) -> Vec<String> {
        let asked = package.limits.iter().filter(|(_, limit)| limit.manifest.is_some());
        let is_idle = |used: u64, limit: u64| {
            self.attempts >= ENOUGH_ATTEMPTS && used.saturating_mul(FAR_ABOVE) < limit
        };
        let idle = asked.filter(|(name, limit)| is_idle(self.most(name), limit.effective));
        idle.map(|(name, limit)| {
            let (asked, used) = (shown(limit.effective, limit), shown(self.most(name), limit));
            format!("it asks for {asked} of {name}, and {} attempts used at most {used}", self.attempts)
        })
        .collect()
    }
}
