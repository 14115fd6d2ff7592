//! The headroom of a connector's limits: what its attempts used of each, and a limit that would have been enough.

use std::collections::BTreeMap;

use cofferdam_audit::{ResourceUsage, UsageRange, UsageReport, range_starts};
use cofferdam_core::limits::RESPONSE_BODY_BYTES;
use cofferdam_server::http_api::LimitDescription;
use maud::{Markup, html};

use crate::chart::{self, Labels, Series};
use crate::format::{bytes, duration, number, percent};
use crate::frame::table;

/// A resource that has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resource {
    Fuel,
    Memory,
    WallTime,
    /// The body of a response. Its limit is the same for all calls.
    Response,
}

impl Resource {
    /// The resources with a limit that can differ between connectors and calls.
    const ADJUSTABLE: [Self; 3] = [Self::Fuel, Self::Memory, Self::WallTime];

    /// Returns the name in the limits of the HTTP API, which has the adjustable ones.
    const fn name(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::Memory => "memory",
            Self::WallTime => "wall_time",
            Self::Response => "response",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::Memory => "memory",
            Self::WallTime => "wall time",
            Self::Response => "largest response",
        }
    }

    fn of(self, usage: &UsageReport) -> &ResourceUsage {
        match self {
            Self::Fuel => &usage.fuel,
            Self::Memory => &usage.memory_bytes,
            Self::WallTime => &usage.wall_us,
            Self::Response => &usage.response_bytes,
        }
    }

    /// Returns an amount as usage has it, from one as limits have it: times are in microseconds there.
    const fn used_unit(self, limit: u64) -> u64 {
        match self {
            Self::WallTime => limit.saturating_mul(1_000),
            Self::Fuel | Self::Memory | Self::Response => limit,
        }
    }

    fn amount(self, amount: u64) -> String {
        match self {
            Self::Fuel => number(amount),
            Self::Memory | Self::Response => bytes(amount),
            Self::WallTime => duration(amount),
        }
    }

    /// Returns the end of a range without rounding: few are a whole number of KiB or of minutes.
    fn range_end(self, amount: u64) -> String {
        match self {
            Self::Fuel => number(amount),
            Self::Memory | Self::Response => format!("{} bytes", number(amount)),
            Self::WallTime if amount >= 1_000_000 => format!("{} s", number(amount / 1_000_000)),
            Self::WallTime => duration(amount),
        }
    }

    /// Returns the least limit with round digits that is not below `most`, as a manifest can have it.
    fn sufficient(self, most: u64) -> u64 {
        let unit = match self {
            Self::Fuel => 1,
            Self::Memory | Self::Response => 1_048_576,
            Self::WallTime => 1_000,
        };
        let units = most.div_ceil(unit).max(1);
        let step = 10_u64.checked_pow(units.ilog10().saturating_sub(1)).unwrap_or(1);
        units.div_ceil(step).saturating_mul(step).saturating_mul(unit)
    }
}

/// Returns the share in percent as the bound that it is.
fn at_most(most: u64, limit: u64) -> String {
    match u128::from(most) * 100 {
        hundredfold if hundredfold < u128::from(limit) => percent(most, limit),
        // Rounded up: it is a bound.
        hundredfold => format!("at most {} %", hundredfold.div_ceil(u128::from(limit.max(1)))),
    }
}

/// Returns the sentence for a reviewer. None if no attempt was recorded.
fn sentence(resource: Resource, used: &ResourceUsage, limit: u64) -> Option<String> {
    let most = used.max?;
    let title = resource.title();
    let attempts = used.ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.attempts));
    let attempts =
        if attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", number(attempts)) };
    let beginning = match resource {
        Resource::Response if most == 0 => return Some(format!("{attempts} read no byte of a response.")),
        Resource::Response => format!("{attempts} read responses of {} of the limit", at_most(most, limit)),
        // The calls were given more, or the limit was lower later.
        _ if most > limit => {
            format!("{attempts} used up to {} of {title}, more than the limit", resource.amount(most))
        }
        _ => format!("{attempts} used {} of the {title}", at_most(most, limit)),
    };
    let enough = resource.sufficient(most);
    Some(match enough < limit {
        true => format!("{beginning}; a limit of {} would have held.", resource.amount(enough)),
        false => format!("{beginning}."),
    })
}

/// Returns the part of the page about limits.
pub(crate) fn limits(limits: &BTreeMap<String, LimitDescription>, usage: Option<&UsageReport>) -> Markup {
    html! {
        @for resource in Resource::ADJUSTABLE {
            @if let Some(limit) = limits.get(resource.name()) {
                (one(resource, resource.used_unit(limit.effective), &sources(resource, limit), usage))
            }
        }
        (one(Resource::Response, RESPONSE_BODY_BYTES, &response_sources(), usage))
    }
}

/// Returns the limit of a call, and the amounts that it follows from.
fn sources(resource: Resource, limit: &LimitDescription) -> Markup {
    let amount = |amount: u64| resource.amount(resource.used_unit(amount));
    html! {
        dt { "Limit of a call" } dd { (amount(limit.effective)) }
        dt { "Manifest asks for" } dd { (limit.manifest.map_or_else(|| "nothing".to_owned(), amount)) }
        dt { "Default" } dd { (amount(limit.default)) }
        dt { "Ceiling of this host" } dd { (amount(limit.ceiling)) }
    }
}

/// Returns the limit of a response, which is also the default and the ceiling: nothing changes it.
fn response_sources() -> Markup {
    let amount = bytes(RESPONSE_BODY_BYTES);
    html! {
        dt { "Limit of a response" } dd { (amount) ", the same for every connector" }
        dt { "Manifest asks for" } dd { "nothing: it cannot change this limit" }
        dt { "Default" } dd { (amount) }
        dt { "Ceiling of this host" } dd { (amount) }
    }
}

fn one(resource: Resource, limit: u64, about: &Markup, usage: Option<&UsageReport>) -> Markup {
    let used = usage.map(|usage| resource.of(usage));
    let shown = |amount: Option<u64>| amount.map_or_else(|| "-".to_owned(), |amount| resource.amount(amount));
    html! {
        h3 { (capitalized(resource.title())) }
        @match used.and_then(|used| sentence(resource, used, limit)) {
            Some(sentence) => p.panel { (sentence) },
            None => p.dim { "No attempt is on record." },
        }
        @if let Some(used) = used.filter(|used| used.max.is_some()) {
            (histogram(resource, used, limit))
        }
        dl {
            (about)
            @if let Some(used) = used {
                dt { "Used: p50, p99, most" }
                dd { (shown(used.p50)) ", " (shown(used.p99)) ", " (shown(used.max)) }
            }
        }
    }
}

/// A range of the 1-2-5 series, and the attempts whose amount is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AmountRange {
    from: u64,
    /// The beginning of the next range.
    to: u64,
    attempts: u64,
}

/// Returns the ranges from the first that was used to the last, and those between them and the limit.
fn ranges(used: &[UsageRange], limit: u64) -> Vec<AmountRange> {
    let least = used.first().map_or(limit, |range| range.from.min(limit));
    let most = used.last().map_or(limit, |range| range.from.max(limit));
    let attempts = |from: u64| used.iter().find(|range| range.from == from).map_or(0, |range| range.attempts);
    let ends = range_starts().skip(1).chain([u64::MAX]);
    let shown = range_starts().zip(ends).filter(|(from, to)| *to > least && *from <= most);
    shown.map(|(from, to)| AmountRange { from, to, attempts: attempts(from) }).collect()
}

/// Returns the place of the limit in these ranges, in thousandths of a range from the left.
fn place(limit: u64, ranges: &[AmountRange]) -> u64 {
    let below = ranges.iter().take_while(|range| range.to <= limit).count() as u64;
    let within = ranges.iter().find(|range| range.to > limit).map_or(0, |range| {
        chart::scale(limit.saturating_sub(range.from), range.to.saturating_sub(range.from), 1_000)
    });
    below.saturating_mul(1_000).saturating_add(within)
}

/// Returns a histogram of the used amounts with the limit, and its numbers in a table.
fn histogram(resource: Resource, used: &ResourceUsage, limit: u64) -> Markup {
    let ranges = ranges(&used.ranges, limit);
    let amount = |amount: Option<u64>| resource.amount(amount.unwrap_or_default());
    let title = format!("Attempts by {}", resource.title());
    let text = format!(
        "{title}: half of them at most {}, 99 of a hundred at most {}, all at most {}. The limit is {}. The table \
         below has the numbers.",
        amount(used.p50),
        amount(used.p99),
        amount(used.max),
        resource.amount(limit)
    );
    let most = ranges.iter().map(|range| range.attempts).max().unwrap_or(0);
    let ends = [ranges.first().map(|range| range.from), ranges.last().map(|range| range.to)];
    let labels = Labels {
        title: &title,
        text,
        most: format!("{} in a range; the line is the limit", number(most)),
        ends: ends.map(|end| resource.range_end(end.unwrap_or_default())),
    };
    let values = ranges.iter().map(|range| Some(range.attempts)).collect();
    let series = Series { name: "attempts".to_owned(), class: "s0", values };
    let rows = html! {
        @for range in ranges.iter().filter(|range| range.attempts > 0) {
            tr {
                th scope="row" { (resource.range_end(range.from)) }
                td.number { (resource.range_end(range.to)) }
                td.number { (number(range.attempts)) }
            }
        }
    };
    html! {
        (chart::histogram(&labels, &series, place(limit, &ranges)))
        @if resource == Resource::Response {
            p.dim { "Each attempt counts once, with the bytes that it read of its largest response, or with 0." }
        }
        details {
            summary { (capitalized(resource.title())) " as a table" }
            (table(&title, &["From", "Below", "Attempts"], &rows))
        }
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(ranges: &[(u64, u64)], max: Option<u64>) -> ResourceUsage {
        let ranges = ranges.iter().map(|(from, attempts)| UsageRange { from: *from, attempts: *attempts });
        ResourceUsage { p50: max, p90: max, p99: max, max, limit: None, ranges: ranges.collect() }
    }

    #[test]
    fn a_reviewer_gets_a_sentence() {
        let said =
            |resource, max, attempts, limit| sentence(resource, &used(&[(0, attempts)], Some(max)), limit);
        assert_eq!(
            said(Resource::Fuel, 2_950_000_001, 1_204, 30_000_000_000).as_deref(),
            Some("1,204 attempts used at most 10 % of the fuel; a limit of 3,000,000,000 would have held.")
        );
        assert_eq!(
            said(Resource::Fuel, 865, 4, 30_000_000_000).as_deref(),
            Some("4 attempts used less than 1 % of the fuel; a limit of 870 would have held.")
        );
        assert_eq!(
            said(Resource::Memory, 1_500_000, 1, 67_108_864).as_deref(),
            Some("1 attempt used at most 3 % of the memory; a limit of 2 MiB would have held.")
        );
        assert_eq!(
            said(Resource::WallTime, 29_999_001, 7, 30_000_000).as_deref(),
            Some("7 attempts used at most 100 % of the wall time.")
        );
        assert_eq!(
            said(Resource::Fuel, 10, 7, 5).as_deref(),
            Some("7 attempts used up to 10 of fuel, more than the limit.")
        );
        assert_eq!(
            said(Resource::Response, 1_500_000, 7, 10_485_760).as_deref(),
            Some("7 attempts read responses of at most 15 % of the limit; a limit of 2 MiB would have held.")
        );
        assert_eq!(
            said(Resource::Response, 0, 7, 10_485_760).as_deref(),
            Some("7 attempts read no byte of a response.")
        );
        assert_eq!(
            said(Resource::Response, 10_485_760, 1, 10_485_760).as_deref(),
            Some("1 attempt read responses of at most 100 % of the limit.")
        );
        assert_eq!(sentence(Resource::Fuel, &used(&[], None), 5), None);
    }

    /// Returns the beginnings of the ranges with their attempts, and the place of the limit.
    fn shown(used: &[(u64, u64)], limit: u64) -> (Vec<(u64, u64)>, u64) {
        let used: Vec<_> =
            used.iter().map(|(from, attempts)| UsageRange { from: *from, attempts: *attempts }).collect();
        let ranges = ranges(&used, limit);
        assert!(ranges.is_sorted_by(|one, next| one.to == next.from), "{ranges:?}");
        (ranges.iter().map(|range| (range.from, range.attempts)).collect(), place(limit, &ranges))
    }

    #[test]
    fn ranges_go_from_the_least_use_to_the_limit() {
        let all = vec![(20, 3), (50, 0), (100, 1), (200, 0), (500, 0)];
        assert_eq!(shown(&[(20, 3), (50, 0), (100, 1)], 750), (all, 4_500));
        // A range that begins with the limit.
        assert_eq!(shown(&[(20, 3), (50, 1)], 50), (vec![(20, 3), (50, 1)], 1_000));
        // More than the limit, and nothing below it.
        assert_eq!(shown(&[(10, 2)], 5), (vec![(5, 0), (10, 2)], 0));
        assert_eq!(shown(&[(2, 7), (5, 0), (10, 2)], 3), (vec![(2, 7), (5, 0), (10, 2)], 333));
        // Only zeros.
        assert_eq!(shown(&[(0, 9)], 6), (vec![(0, 9), (1, 0), (2, 0), (5, 0)], 3_200));
        let (all, limit) = shown(&[(0, 1), (10_000_000_000_000_000_000, 1)], u64::MAX);
        assert_eq!((all.len() as u64 * 1_000, all.last()), (limit, Some(&(10_000_000_000_000_000_000, 1))));
    }

    #[test]
    fn a_histogram_has_bars_a_line_and_a_table() {
        let chart = |ranges: &[(u64, u64)], max| {
            histogram(Resource::Response, &used(ranges, Some(max)), 10_485_760).into_string()
        };
        let some = chart(&[(2_000, 1), (5_000, 0), (10_000, 100_000)], 19_000);
        assert_eq!(some.matches("<rect").count(), 2, "{some}");
        for part in [
            "all at most 18.5 KiB. The limit is 10 MiB. The table below has the numbers.",
            "at most 100,000 in a range; the line is the limit",
            "<span>2,000 bytes</span><span>20,000,000 bytes</span>",
            "height=\"2\"",
            "<line class=\"limit\"",
            "10,000 bytes</th><td class=\"number\">20,000 bytes</td><td class=\"number\">100,000</td>",
        ] {
            assert!(some.contains(part), "{part}: {some}");
        }
        assert_eq!(some.matches("<tr>").count(), 3, "{some}");
        let none = chart(&[(0, 4)], 0);
        assert_eq!((none.matches("<rect").count(), none.matches("<tr>").count()), (1, 2), "{none}");
        assert!(none.contains("all at most 0 bytes"), "{none}");
    }

    #[test]
    fn the_limit_of_a_response_needs_no_recorded_use() {
        let page = limits(&BTreeMap::new(), None).into_string();
        for part in
            ["No attempt is on record.", "10 MiB, the same for every connector", "<dt>Default</dt><dd>10 MiB"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn ends_of_ranges_are_exact() {
        let ends = [0, 500, 2_000, 5_000_000, 200_000_000].map(|end| Resource::WallTime.range_end(end));
        assert_eq!(ends, ["0 us", "500 us", "2.0 ms", "5 s", "200 s"]);
        assert_eq!(Resource::Memory.range_end(1_000_000), "1,000,000 bytes");
    }

    #[test]
    fn a_sufficient_limit_is_not_below_the_use() {
        for resource in Resource::ADJUSTABLE {
            for most in [0, 1, 9, 10, 11, 999, 1_000, 1_001, 123_456_789, u64::MAX / 4] {
                assert!(resource.sufficient(most) >= most.max(1), "{resource:?} {most}");
            }
        }
        assert_eq!(Resource::Fuel.sufficient(123_456), 130_000);
        assert_eq!(Resource::WallTime.sufficient(1_234_567), 1_300_000);
    }
}
