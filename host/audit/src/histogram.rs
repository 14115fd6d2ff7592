//! Counts durations, and other amounts, by length: exact below 32 microseconds, and within 3 % above; the longest exactly.

/// Steps of each doubling, as a power of two.
const STEPS: u32 = 5;

/// The number of durations of each length, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    // By bucket, in order; none is 0.
    counts: Vec<(u16, u64)>,
    longest: u64,
}

/// The bucket in which a duration is counted.
fn bucket(micros: u64) -> u16 {
    let steps = 1u64 << STEPS;
    if micros < steps {
        return u16::try_from(micros).unwrap_or(u16::MAX);
    }
    let shift = micros.ilog2() - STEPS;
    // At most 59 doublings of 32 steps, and the step within.
    let bucket = u64::from(shift) * steps + (micros >> shift);
    u16::try_from(bucket).unwrap_or(u16::MAX)
}

/// The least duration of a bucket.
fn least(bucket: u16) -> u64 {
    let (bucket, steps) = (u64::from(bucket), 1u64 << STEPS);
    if bucket < steps {
        return bucket;
    }
    let shift = u32::try_from(bucket / steps - 1).unwrap_or(u32::MAX);
    let least = 1u64.checked_shl(shift).and_then(|unit| (bucket % steps + steps).checked_mul(unit));
    // After the last bucket.
    least.unwrap_or(u64::MAX)
}

impl Histogram {
    /// Counts one more.
    pub fn record(&mut self, micros: u64) {
        self.longest = self.longest.max(micros);
        self.add(bucket(micros), 1);
    }

    /// Counts all that `other` counts.
    pub fn merge(&mut self, other: &Self) {
        self.longest = self.longest.max(other.longest);
        let mut own = std::mem::take(&mut self.counts).into_iter().peekable();
        // One walk over both: most have many buckets, and inserting each would move those behind it.
        for (bucket, count) in &other.counts {
            self.counts.extend(std::iter::from_fn(|| own.next_if(|(before, _)| before < bucket)));
            let same = own.next_if(|(same, _)| same == bucket).map_or(0, |(_, count)| count);
            self.counts.push((*bucket, count.saturating_add(same)));
        }
        self.counts.extend(own);
    }

    /// Counts all that `other` counts no more. The longest stays what it was, unless nothing is left.
    pub(crate) fn remove(&mut self, other: &Self) {
        for (bucket, count) in &other.counts {
            if let Ok(at) = self.counts.binary_search_by_key(bucket, |(own, _)| *own)
                && let Some((_, own)) = self.counts.get_mut(at)
            {
                *own = own.saturating_sub(*count);
            }
        }
        self.counts.retain(|(_, count)| *count > 0);
        if self.counts.is_empty() {
            self.longest = 0;
        }
    }

    /// Returns true if this can be `other` after the removal of longer durations: the same counts, and a
    /// longest duration that is at least that of `other`.
    #[cfg(test)]
    pub(crate) fn is_rest_like(&self, other: &Self) -> bool {
        self.counts == other.counts && self.longest >= other.longest
    }

    fn add(&mut self, bucket: u16, count: u64) {
        if self.counts.last().is_none_or(|(last, _)| *last < bucket) {
            self.counts.push((bucket, count));
            return;
        }
        match self.counts.binary_search_by_key(&bucket, |(own, _)| *own) {
            Ok(at) => {
                if let Some((_, own)) = self.counts.get_mut(at) {
                    *own = own.saturating_add(count);
                }
            }
            Err(at) => self.counts.insert(at, (bucket, count)),
        }
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The longest; none where there is none.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (!self.counts.is_empty()).then_some(self.longest)
    }

    /// The duration that `percent` of all do not exceed, within 3 %; none where there is none.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> Option<u64> {
        let wanted = u128::from(self.count()) * u128::from(percent.min(100));
        let mut seen = 0u128;
        let (bucket, _) = self.counts.iter().find(|(_, count)| {
            seen += u128::from(*count);
            seen * 100 >= wanted
        })?;
        // The middle of the bucket, but never longer than the longest measured duration.
        let (from, to) = (least(*bucket), least(bucket.saturating_add(1)));
        Some((from + to.saturating_sub(from) / 2).min(self.longest))
    }

    /// The counts: the least duration of each step that has any, and how many there are.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().map(|(bucket, count)| (least(*bucket), *count))
    }

    /// It in bytes: the longest, then for each step how far it is from the one before, and its count; each number in
    /// groups of 7 bits, the lowest first.
    #[must_use]
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 + self.counts.len() * 3);
        put_varint(&mut bytes, self.longest);
        let mut before = 0;
        for (bucket, count) in &self.counts {
            put_varint(&mut bytes, u64::from(bucket - before));
            put_varint(&mut bytes, *count);
            before = *bucket;
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; of bytes that are cut short, what there is.
    #[must_use]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let mut numbers = Varints::new(bytes);
        let mut histogram = Self { counts: Vec::new(), longest: numbers.next().unwrap_or(0) };
        let mut before = 0u16;
        while let (Some(step), Some(count)) = (numbers.next(), numbers.next()) {
            before = before.saturating_add(u16::try_from(step).unwrap_or(u16::MAX));
            histogram.add(before, count);
        }
        histogram
    }
}

/// A sum of many stored histograms.
#[derive(Debug, Default)]
pub(crate) struct HistogramSum {
    /// By bucket, from the first one on that has any.
    counts: Vec<u64>,
    first: usize,
    longest: u64,
}

impl HistogramSum {
    /// Adds what [`Histogram::to_bytes`] wrote.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        let mut numbers = Varints::new(bytes);
        self.longest = self.longest.max(numbers.next().unwrap_or(0));
        let mut bucket = 0_usize;
        while let (Some(step), Some(count)) = (numbers.next(), numbers.next()) {
            let step = usize::from(u16::try_from(step).unwrap_or(u16::MAX));
            bucket = bucket.saturating_add(step).min(usize::from(u16::MAX));
            if self.counts.is_empty() {
                self.first = bucket;
            }
            if let Some(before) = self.first.checked_sub(bucket).filter(|before| *before > 0) {
                self.counts.splice(0..0, std::iter::repeat_n(0, before));
                self.first = bucket;
            }
            let position = bucket.saturating_sub(self.first);
            if self.counts.len() <= position {
                self.counts.resize(position.saturating_add(1), 0);
            }
            if let Some(own) = self.counts.get_mut(position) {
                *own = own.saturating_add(count);
            }
        }
    }

    /// Returns the sum.
    pub(crate) fn into_histogram(self) -> Histogram {
        let counts = self.counts.into_iter().zip(self.first..).filter(|(count, _)| *count > 0);
        let counts = counts.map(|(count, bucket)| (u16::try_from(bucket).unwrap_or(u16::MAX), count));
        Histogram { counts: counts.collect(), longest: self.longest }
    }
}

/// Appends a number in groups of 7 bits, the lowest first.
pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads the numbers that [`put_varint`] wrote; none after the last whole one.
pub(crate) struct Varints<'b>(std::slice::Iter<'b, u8>);

impl<'b> Varints<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes.iter())
    }
}

impl Iterator for Varints<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.0.next()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use proptest::prelude::*;

    use super::{Histogram, HistogramSum, bucket, least};

    #[test]
    fn the_last_bucket_ends_with_the_numbers() {
        assert_eq!(least(bucket(u64::MAX) + 1), u64::MAX);
    }

    proptest! {
        #[test]
        fn histogram_buckets_are_within_three_percent(micros in any::<u64>(), shift in 0u32..64) {
            let micros = micros >> shift;
            let (from, to) = (least(bucket(micros)), least(bucket(micros) + 1));
            prop_assert!(from <= micros && (micros < to || to == u64::MAX), "{from} {micros} {to}");
            prop_assert!(u128::from(to - from) * 32 <= u128::from(from.max(32)), "{from} {to}");
        }

        #[test]
        fn percentiles_match_the_durations(
            mut all in proptest::collection::vec(0u64..10_000_000, 1..300), percent in 1u8..=100,
        ) {
            let mut halves = [Histogram::default(), Histogram::default()];
            for (at, micros) in all.iter().enumerate() {
                halves[at % 2].record(*micros);
            }
            let [mut histogram, other] = halves;
            let mut sum = HistogramSum::default();
            [&histogram, &other].iter().for_each(|half| sum.add_bytes(&half.to_bytes()));
            histogram.merge(&Histogram::from_bytes(&other.to_bytes()));
            prop_assert_eq!(sum.into_histogram(), histogram.clone());
            all.sort_unstable();
            let exact = all[(all.len() * usize::from(percent)).div_ceil(100) - 1];
            let told = histogram.percentile(percent).unwrap();
            prop_assert!(told.abs_diff(exact) * 32 <= exact.max(32), "{told} {exact}");
            prop_assert_eq!(histogram.count(), all.len() as u64);
            prop_assert_eq!(histogram.max(), all.last().copied());
            prop_assert_eq!(Histogram::from_bytes(&histogram.to_bytes()), histogram);
        }

        #[test]
        fn invalid_histogram_bytes_do_not_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), percent in any::<u8>(),
        ) {
            let histogram = Histogram::from_bytes(&bytes);
            let _ = (histogram.count(), histogram.percentile(percent), histogram.steps().count());
        }
    }
}
