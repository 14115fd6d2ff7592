//! The measurements of a run: loads, times and losses.

use std::ops::Range;
use std::time::Duration;

use super::upstream::BUCKET;
use super::world::{SimulatedOutcome, SimulatedRun};

const SECOND: Duration = Duration::from_secs(1);

impl SimulatedRun {
    /// Returns the number of requests that arrived in `span`.
    pub(super) fn requests(&self, span: &Range<Duration>) -> u32 {
        self.buckets(span).iter().sum()
    }

    /// Returns the maximum number of requests that arrived in one tenth of a second of `span`.
    pub(super) fn peak(&self, span: &Range<Duration>) -> u32 {
        self.buckets(span).iter().copied().max().unwrap_or_default()
    }

    /// Returns the calls that began in `span`.
    pub(super) fn begun(&self, span: &Range<Duration>) -> impl Iterator<Item = &SimulatedOutcome> {
        self.calls.iter().filter(|call| span.contains(&call.begun))
    }

    /// Returns the percentage of the calls begun in `span` that got their value.
    pub(super) fn served(&self, span: &Range<Duration>) -> f64 {
        let (all, served) = (self.begun(span).count(), self.begun(span).filter(|call| call.value).count());
        if all == 0 { 100.0 } else { 100.0 * served as f64 / all as f64 }
    }

    /// Returns the median time that the failed calls begun in `span` took to report their failure.
    pub(super) fn told_after(&self, span: &Range<Duration>) -> Option<Duration> {
        let failed = self.begun(span).filter(|call| !call.value);
        median(failed.map(|call| call.ended - call.begun).collect())
    }

    /// Returns the time from `recovery` until the first call got its value; `None` if no call did.
    pub(super) fn first_value(&self, recovery: Duration) -> Option<Duration> {
        let values = self.calls.iter().filter(|call| call.value && call.ended >= recovery);
        values.map(|call| call.ended - recovery).min()
    }

    /// Returns the first whole second after `recovery` in which 95 % of the calls got their value, if any.
    pub(super) fn healthy_after(&self, recovery: Duration, until: Duration) -> Option<Duration> {
        let mut starts = (0..).map(|n| SECOND * n).take_while(|start| recovery + *start + SECOND < until);
        starts.find(|start| self.served(&(recovery + *start..recovery + *start + SECOND)) >= 95.0)
    }

    fn buckets(&self, span: &Range<Duration>) -> &[u32] {
        let bucket = |at: Duration| (at.as_millis() / BUCKET.as_millis()) as usize;
        let end = bucket(span.end).min(self.load.len());
        &self.load[bucket(span.start).min(end)..end]
    }
}

/// Returns the median; `None` if there are no values.
pub(super) fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
