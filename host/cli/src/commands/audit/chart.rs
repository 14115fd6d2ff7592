//! The durations of calls as bars: a row for each range of a 1-2-5 series.

use std::io::IsTerminal as _;

use cofferdam_audit::HistogramStep;

use crate::commands::time_format;
use crate::layout::Page;

/// The longest bar, in columns.
const WIDTH: u64 = 40;

/// Adds the chart of the calls in these ranges to the page. Bars are blocks on a terminal, and `#` elsewhere.
pub(super) fn add(page: &mut Page, ranges: &[HistogramStep]) {
    let most = ranges.iter().map(|range| range.calls).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    page.heading("how long calls took, from");
    let blocks = std::io::stdout().is_terminal();
    for HistogramStep { from_us, calls } in ranges {
        let bar = if blocks { blocks_of(*calls, most) } else { signs_of(*calls, most) };
        let width = usize::try_from(WIDTH).unwrap_or(0);
        page.block(0, &format!("{:>8}  {bar:<width$} {calls}", time_format::format_duration(*from_us)));
    }
}

/// The share of [`WIDTH`], in eighths, at least one.
fn eighths(calls: u64, most: u64) -> u64 {
    let share = u128::from(calls) * u128::from(WIDTH) * 8 / u128::from(most.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).max(u64::from(calls > 0))
}

fn blocks_of(calls: u64, most: u64) -> String {
    let eighths = eighths(calls, most);
    let last = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let last = usize::try_from(eighths % 8).ok().and_then(|at| last.get(at)).copied();
    "█".repeat(usize::try_from(eighths / 8).unwrap_or(0)) + last.unwrap_or_default()
}

fn signs_of(calls: u64, most: u64) -> String {
    "#".repeat(usize::try_from(eighths(calls, most).div_ceil(8)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use cofferdam_audit::{Histogram, histogram_ranges};

    use super::*;

    #[test]
    fn bars_begin_in_the_same_column() {
        let mut durations = Histogram::default();
        for micros in [3, 1_500, 700_000] {
            durations.record(micros);
        }
        let mut page = Page::default();
        let ranges = histogram_ranges(&durations).into_iter();
        let ranges: Vec<_> = ranges.map(|(from_us, calls)| HistogramStep { from_us, calls }).collect();
        add(&mut page, &ranges);
        let text = page.into_text();
        let bars: Vec<_> = text.lines().filter_map(|line| line.find('#')).collect();
        assert!(bars.len() >= 3 && bars.iter().all(|at| *at == 10), "{text}");
    }

    #[test]
    fn bars_are_proportional() {
        assert_eq!(signs_of(1, 1).len(), 40);
        assert_eq!((blocks_of(40, 40).chars().count(), blocks_of(1, 40).as_str()), (40, "█"));
        assert_eq!((blocks_of(1, 100_000).as_str(), blocks_of(0, 9).as_str()), ("▏", ""));
    }
}
