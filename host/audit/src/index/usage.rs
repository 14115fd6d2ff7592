//! The resources that calls used, as the index stores them: of one call as numbers, of many as histograms.

use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, HistogramSum};
use crate::stats::UsageStats;

/// The number of resources that are counted.
pub(crate) const RESOURCES: usize = 6;

/// The resources that an attempt used, and their limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptUsage {
    /// Fuel, memory, wall time in microseconds, requests, bytes, bytes of the largest response.
    pub used: [u64; RESOURCES],
    /// Fuel, memory, wall time in milliseconds.
    pub limits: [u64; 3],
}

/// The requests of a call of the same kind to one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RequestTally {
    /// The number of the target that sent them; 0 for the call's own.
    pub(super) target: i64,
    pub(super) host: i64,
    /// The number of their kind.
    pub(super) kind: i64,
    pub(super) count: u64,
}

/// The usage of the attempts of a call, and their requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallUsage {
    pub(super) attempts: Vec<AttemptUsage>,
    pub(super) requests: Vec<RequestTally>,
}

impl CallUsage {
    /// Counts a request.
    pub(super) fn add_request(&mut self, target: i64, host: i64, kind: i64) {
        let same = |tally: &&mut RequestTally| (tally.target, tally.host, tally.kind) == (target, host, kind);
        match self.requests.iter_mut().find(same) {
            Some(tally) => tally.count = tally.count.saturating_add(1),
            None => self.requests.push(RequestTally { target, host, kind, count: 1 }),
        }
    }

    /// Returns the numbers of the hosts of the requests, each once.
    pub(super) fn hosts(&self) -> Vec<i64> {
        let mut hosts: Vec<_> = self.requests.iter().map(|tally| tally.host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        postcard::from_bytes(bytes).unwrap_or_default()
    }
}

impl UsageStats {
    /// Counts an attempt.
    pub fn record(&mut self, attempt: &AttemptUsage) {
        self.used.iter_mut().zip(attempt.used).for_each(|(own, amount)| own.record(amount));
        raise(&mut self.limits, attempt.limits);
    }

    /// Counts everything that `other` counts.
    pub fn merge(&mut self, other: &Self) {
        self.used.iter_mut().zip(&other.used).for_each(|(own, other)| own.merge(other));
        raise(&mut self.limits, other.limits);
    }

    /// Counts everything that `other` counts no more. The limits stay what they were.
    pub(super) fn remove(&mut self, other: &Self) {
        self.used.iter_mut().zip(&other.used).for_each(|(own, other)| own.remove(other));
    }

    /// Returns true if this can be `other` after the removal of larger amounts.
    #[cfg(test)]
    pub(super) fn is_rest_like(&self, other: &Self) -> bool {
        self.used.iter().zip(&other.used).all(|(own, other)| own.is_rest_like(other))
    }

    /// Writes the limits and the bytes of each histogram, in the form of postcard.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        let used = self.used.each_ref().map(Histogram::to_bytes);
        postcard::to_allocvec(&(self.limits, used)).unwrap_or_default()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let (limits, used) = read(bytes);
        Self { used: used.map(Histogram::from_bytes), limits }
    }
}

/// A sum of the usage in many rows.
#[derive(Debug, Default)]
pub(super) struct UsageSum {
    used: [HistogramSum; RESOURCES],
    limits: [u64; 3],
}

impl UsageSum {
    /// Adds what [`UsageStats::to_bytes`] wrote.
    pub(super) fn add_bytes(&mut self, bytes: &[u8]) {
        let (limits, used) = read(bytes);
        self.used.iter_mut().zip(used).for_each(|(own, histogram)| own.add_bytes(histogram));
        raise(&mut self.limits, limits);
    }

    pub(super) fn into_stats(self) -> UsageStats {
        UsageStats { used: self.used.map(HistogramSum::into_histogram), limits: self.limits }
    }
}

fn raise(limits: &mut [u64; 3], others: [u64; 3]) {
    limits.iter_mut().zip(others).for_each(|(own, other)| *own = other.max(*own));
}

/// Reads what [`UsageStats::to_bytes`] wrote.
fn read(bytes: &[u8]) -> ([u64; 3], [&[u8]; RESOURCES]) {
    postcard::from_bytes(bytes).unwrap_or_default()
}
