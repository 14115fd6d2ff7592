//! The headroom of a connector's limits: what its attempts used of each, and a limit that would have been enough.

use cofferdam_audit::{ResourceUsage, UsageReport};
use cofferdam_server::http_api::LimitDescription;
use maud::{Markup, html};

use crate::format::{bytes, duration, number, percent};

/// The width of a bar in the units of its picture.
const WIDTH: u64 = 1_000;

/// A resource that has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resource {
    Fuel,
    Memory,
    WallTime,
}

impl Resource {
    const ALL: [Self; 3] = [Self::Fuel, Self::Memory, Self::WallTime];

    /// Returns the name in the limits of the HTTP API.
    const fn name(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::Memory => "memory",
            Self::WallTime => "wall_time",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Fuel => "fuel",
            Self::Memory => "memory",
            Self::WallTime => "wall time",
        }
    }

    fn of(self, usage: &UsageReport) -> &ResourceUsage {
        match self {
            Self::Fuel => &usage.fuel,
            Self::Memory => &usage.memory_bytes,
            Self::WallTime => &usage.wall_us,
        }
    }

    /// Returns an amount as usage has it, from one as limits have it: times are in microseconds there.
    const fn used_unit(self, limit: u64) -> u64 {
        match self {
            Self::WallTime => limit.saturating_mul(1_000),
            Self::Fuel | Self::Memory => limit,
        }
    }

    fn amount(self, amount: u64) -> String {
        match self {
            Self::Fuel => number(amount),
            Self::Memory => bytes(amount),
            Self::WallTime => duration(amount),
        }
    }

    /// Returns the least limit with round digits that is not below `most`, as a manifest can have it.
    fn sufficient(self, most: u64) -> u64 {
        let unit = match self {
            Self::Fuel => 1,
            Self::Memory => 1_048_576,
            Self::WallTime => 1_000,
        };
        let units = most.div_ceil(unit).max(1);
        let step = 10_u64.checked_pow(units.ilog10().saturating_sub(1)).unwrap_or(1);
        units.div_ceil(step).saturating_mul(step).saturating_mul(unit)
    }
}

/// Returns the share in percent as the bound that it is.
fn at_most(most: u64, limit: u64) -> String {
    let share = percent(most, limit);
    if share.starts_with("less") { share } else { format!("at most {share}") }
}

/// Returns the sentence for a reviewer. None if no attempt was recorded.
fn sentence(resource: Resource, used: &ResourceUsage, attempts: u64, limit: u64) -> Option<String> {
    let most = used.max.filter(|_| attempts > 0)?;
    let title = resource.title();
    let attempts =
        if attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", number(attempts)) };
    let beginning = match most > limit {
        // The calls were given more, or the limit was lower later.
        true => format!("{attempts} used up to {} of {title}, more than the limit", resource.amount(most)),
        false => format!("{attempts} used {} of the {title}", at_most(most, limit)),
    };
    let enough = resource.sufficient(most);
    Some(match enough < limit {
        true => format!("{beginning}; a limit of {} would have held.", resource.amount(enough)),
        false => format!("{beginning}."),
    })
}

/// Returns the part of the page about limits.
pub(crate) fn limits(
    limits: &std::collections::BTreeMap<String, LimitDescription>,
    usage: Option<&UsageReport>,
) -> Markup {
    html! {
        @for resource in Resource::ALL {
            @if let Some(limit) = limits.get(resource.name()) {
                (one(resource, limit, usage))
            }
        }
    }
}

fn one(resource: Resource, limit: &LimitDescription, usage: Option<&UsageReport>) -> Markup {
    let amount = |amount: u64| resource.amount(resource.used_unit(amount));
    let effective = resource.used_unit(limit.effective);
    let attempts = usage.map_or(0, |usage| usage.attempts);
    let used = usage.map(|usage| resource.of(usage));
    let shown = |amount: Option<u64>| amount.map_or_else(|| "-".to_owned(), |amount| resource.amount(amount));
    html! {
        h3 { (capitalized(resource.title())) }
        @match used.and_then(|used| sentence(resource, used, attempts, effective)) {
            Some(sentence) => p.panel { (sentence) },
            None => p.dim { "No attempt is on record." },
        }
        @if let Some(used) = used.filter(|used| used.max.is_some()) {
            (bar(resource, used, effective))
        }
        dl {
            dt { "Limit of a call" } dd { (amount(limit.effective)) }
            dt { "Manifest asks for" } dd { (limit.manifest.map_or_else(|| "nothing".to_owned(), amount)) }
            dt { "Default" } dd { (amount(limit.default)) }
            dt { "Ceiling of this host" } dd { (amount(limit.ceiling)) }
            @if let Some(used) = used {
                dt { "Used: p50, p99, most" }
                dd { (shown(used.p50)) ", " (shown(used.p99)) ", " (shown(used.max)) }
            }
        }
    }
}

/// Returns a picture of the used amounts against the limit.
fn bar(resource: Resource, used: &ResourceUsage, limit: u64) -> Markup {
    let at = |amount: Option<u64>| {
        let amount = u128::from(amount.unwrap_or_default().min(limit));
        u64::try_from(amount * u128::from(WIDTH) / u128::from(limit.max(1))).unwrap_or(WIDTH)
    };
    let (half, most) = (at(used.p50), at(used.max));
    let text = format!(
        "Half of the attempts used at most {}, all at most {} of {}.",
        resource.amount(used.p50.unwrap_or_default()),
        resource.amount(used.max.unwrap_or_default()),
        resource.amount(limit)
    );
    html! {
        svg role="img" aria-label=(text) viewBox="0 0 1000 40" preserveAspectRatio="none" {
            title { (text) }
            rect.limit x="0" y="10" width="1000" height="20" {}
            rect.used x="0" y="10" width=(half.max(1)) height="20" {}
            line.most x1=(most.max(1)) y1="4" x2=(most.max(1)) y2="36" {}
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

    fn used(max: Option<u64>) -> ResourceUsage {
        ResourceUsage { p50: max, p90: max, p99: max, max, limit: None }
    }

    #[test]
    fn a_reviewer_gets_a_sentence() {
        let said = |resource, max, attempts, limit| sentence(resource, &used(max), attempts, limit);
        assert_eq!(
            said(Resource::Fuel, Some(2_950_000_001), 1_204, 30_000_000_000).as_deref(),
            Some("1,204 attempts used at most 9 % of the fuel; a limit of 3,000,000,000 would have held.")
        );
        assert_eq!(
            said(Resource::Fuel, Some(865), 4, 30_000_000_000).as_deref(),
            Some("4 attempts used less than 1 % of the fuel; a limit of 870 would have held.")
        );
        assert_eq!(
            said(Resource::Memory, Some(1_500_000), 1, 67_108_864).as_deref(),
            Some("1 attempt used at most 2 % of the memory; a limit of 2 MiB would have held.")
        );
        assert_eq!(
            said(Resource::WallTime, Some(29_999_001), 7, 30_000_000).as_deref(),
            Some("7 attempts used at most 99 % of the wall time.")
        );
        assert_eq!(
            said(Resource::Fuel, Some(10), 7, 5).as_deref(),
            Some("7 attempts used up to 10 of fuel, more than the limit.")
        );
        assert_eq!(said(Resource::Fuel, None, 7, 5), None);
        assert_eq!(said(Resource::Fuel, Some(1), 0, 5), None);
    }

    #[test]
    fn a_sufficient_limit_is_not_below_the_use() {
        for resource in Resource::ALL {
            for most in [0, 1, 9, 10, 11, 999, 1_000, 1_001, 123_456_789, u64::MAX / 4] {
                assert!(resource.sufficient(most) >= most.max(1), "{resource:?} {most}");
            }
        }
        assert_eq!(Resource::Fuel.sufficient(123_456), 130_000);
        assert_eq!(Resource::WallTime.sufficient(1_234_567), 1_300_000);
    }
}
