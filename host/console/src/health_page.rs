//! The page about health: the calls of a time, and the state of what they depend on.

use std::collections::BTreeSet;

use cofferdam_core::failure::{FailureBoundary, FailureClass};
use cofferdam_server::http_api::{
    ConnectorRateLimit, FailureCount, HealthReport, HistoryReport, HistoryStepView, LogUsage,
    VerificationResult, WaitingCalls,
};
use maud::{Markup, html};

use crate::call_pages;
use crate::chart::{self, Labels, Series};
use crate::format::{bytes, duration, number, plain, span};
use crate::frame::{Area, Page, table, time};
use crate::router::CONSOLE;

/// The colours of series in the style sheet.
const COLOURS: [&str; 10] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"];

/// A time that the page can be of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Range {
    #[default]
    Day,
    Week,
    Month,
}

impl Range {
    const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Day => "24 hours",
            Self::Week => "7 days",
            Self::Month => "30 days",
        }
    }

    /// Returns the range with this name; none if there is none.
    pub(crate) fn with_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|range| range.name() == name)
    }

    /// Returns the parameters of its history, for the HTTP API.
    pub(crate) fn parameters(self) -> Vec<(String, String)> {
        let (step, steps) = match self {
            Self::Day => ("hour", "24"),
            Self::Week => ("hour", "168"),
            Self::Month => ("day", "30"),
        };
        [("step", step), ("steps", steps)].map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }
}

/// The page about health. `history` is that of the range.
pub(crate) fn show(range: Range, health: &HealthReport, history: &HistoryReport) -> Page {
    let body = html! {
        nav aria-label="Time" {
            ul.choice {
                @for one in Range::ALL {
                    li {
                        a href=(format!("{CONSOLE}/health?range={}", one.name())) aria-current=[(one == range).then_some("true")] {
                            (one.title())
                        }
                    }
                }
            }
        }
        div #present {
            (attention(health))
            h2 { "Calls" }
            (calls(history))
            h2 { "Failures" }
            (failures(history))
            h2 { "Circuits" }
            (circuits(health))
            h2 { "Rate limits" }
            (rate_limits(health))
            h2 { "Interrupted calls" }
            (waiting(&health.interrupted, "Interrupted calls", "No call was interrupted that is not decided about."))
            h2 { "Idempotency keys that wait" }
            (waiting(&health.undecided_keys, "Calls whose key waits", "No key waits for a decision."))
            h2 { "Audit log" }
            (audit_log(health))
        }
    };
    Page::new(Area::Health, "Health", body)
}

/// Returns what an operator should look at first, in a line each.
fn attention(health: &HealthReport) -> Markup {
    let circuits = health.circuits.as_ref().map(|all| all.iter().filter(|it| it.state != "closed").count());
    let is_changed = health.verification.as_ref().is_some_and(|last| !last.holds);
    let (interrupted, keys) = (health.interrupted.count, health.undecided_keys.count);
    let is_well = circuits == Some(0) && !is_changed && interrupted == 0 && keys == 0;
    html! {
        @if is_well { p.good { "No circuit is open, no call was interrupted, and no key waits." } }
        @else {
            ul.panel.plain {
                @match circuits {
                    None => li.bad { "The circuits cannot be read." },
                    Some(0) => "",
                    Some(open) => li.bad { "Circuits that are not closed: " (open) "." },
                }
                @if interrupted > 0 { li.doubtful { "Interrupted calls that wait for a decision: " (number(interrupted)) "." } }
                @if keys > 0 { li.doubtful { "Idempotency keys that wait for a decision: " (number(keys)) "." } }
                @if is_changed { li.bad { "The audit log did not hold together when it was last verified." } }
            }
        }
    }
}

/// Returns the calls in a second, in thousandths.
fn rate(step: &HistoryStepView) -> u64 {
    step.calls.saturating_mul(1_000) / step.seconds.max(1)
}

/// Returns thousandths as a number with up to three decimals.
fn thousandths(amount: u64) -> String {
    let text = format!("{}.{:03}", number(amount / 1_000), amount % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn micros(micros: Option<u64>) -> String {
    micros.map_or_else(|| "-".to_owned(), duration)
}

fn labels(title: &'static str, text: &str, most: String, history: &HistoryReport) -> Labels<'static> {
    let ends = [&history.since, &history.until].map(|at| crate::format::time(at));
    let [since, until] = &ends;
    Labels {
        title,
        text: format!("{text} from {since} to {until}, at most {most}. The table below has the numbers."),
        most,
        ends,
    }
}

fn calls(history: &HistoryReport) -> Markup {
    let steps = &history.steps;
    let rates = Series {
        name: "calls a second".to_owned(),
        class: "s0",
        values: steps.iter().map(|step| Some(rate(step))).collect(),
    };
    let most = steps.iter().map(rate).max().unwrap_or(0);
    let rate_labels = labels("Calls a second", "The calls a second", thousandths(most), history);
    type Percentile = fn(&HistoryStepView) -> Option<u64>;
    let percentiles: [(&str, &'static str, Percentile); 3] = [
        ("p50: the median", "s0", |step| step.durations.p50_us),
        ("p90: nine of ten", "s1", |step| step.durations.p90_us),
        ("p99: 99 of a hundred", "s2", |step| step.durations.p99_us),
    ];
    let latencies = percentiles.map(|(name, class, percentile)| Series {
        name: name.to_owned(),
        class,
        values: steps.iter().map(percentile).collect(),
    });
    let longest = steps.iter().filter_map(|step| step.durations.p99_us).max();
    let latency_labels = labels("Duration of calls", "Percentiles of durations", micros(longest), history);
    let rows = html! {
        @for step in steps.iter().rev().filter(|step| step.calls > 0) {
            tr {
                th scope="row" { (time(Some(&step.at))) }
                td.number { (number(step.calls)) }
                td.number { (thousandths(rate(step))) }
                td.number { (number(step.failed)) }
                td.number { (micros(step.durations.p50_us)) }
                td.number { (micros(step.durations.p90_us)) }
                td.number { (micros(step.durations.p99_us)) }
                td.number { (micros(step.durations.max_us)) }
            }
        }
    };
    let header = ["From", "Calls", "A second", "Without a value", "p50", "p90", "p99", "Longest"];
    html! {
        @if steps.iter().all(|step| step.calls == 0) { p { "No call ended in this time." } }
        @else {
            (chart::bars(&rate_labels, &[rates]))
            (chart::lines(&latency_labels, &latencies))
            details {
                summary { "Calls and durations as a table" }
                (table("Calls and their durations, by time", &header, &rows))
            }
        }
    }
}

/// Returns the name of a kind of failures, and the position of its colour: that of its class.
fn class_of(failure: &FailureCount) -> Option<(usize, &str)> {
    let class = failure.class.as_deref();
    let position = FailureClass::ALL.iter().position(|own| Some(own.name()) == class);
    Some((position.unwrap_or(FailureClass::ALL.len()), class.unwrap_or(&failure.status)))
}

/// Returns the layer that failed, and the position of its colour. None for calls that were not taken up, or were cancelled:
/// no layer failed.
fn boundary_of(failure: &FailureCount) -> Option<(usize, &str)> {
    failure.class.as_ref()?;
    let boundary = failure.boundary.as_deref();
    let position = FailureBoundary::ALL.iter().position(|own| Some(own.name()) == boundary);
    Some((position.unwrap_or(FailureBoundary::ALL.len()), boundary.unwrap_or("not known")))
}

/// The kind of a failure: the position of its colour, and its name. Failures of no kind are not counted.
type KindOf = fn(&FailureCount) -> Option<(usize, &str)>;

/// Returns a series for each kind of failure that there is, and the most failures in a step.
fn series_of(history: &HistoryReport, kind: KindOf) -> (Vec<Series>, u64) {
    let kinds: BTreeSet<_> = history.steps.iter().flat_map(|step| &step.failures).filter_map(kind).collect();
    let count = |step: &HistoryStepView, is_counted: &dyn Fn(&str) -> bool| {
        let counted =
            step.failures.iter().filter(|failure| kind(failure).is_some_and(|(_, name)| is_counted(name)));
        counted.map(|failure| failure.calls).sum::<u64>()
    };
    let most = history.steps.iter().map(|step| count(step, &|_| true)).max().unwrap_or(0);
    let series = kinds.into_iter().map(|(position, name)| Series {
        name: plain(name),
        class: COLOURS.get(position).copied().unwrap_or("s9"),
        values: history.steps.iter().map(|step| Some(count(step, &|own| own == name))).collect(),
    });
    (series.collect(), most)
}

fn failures(history: &HistoryReport) -> Markup {
    let (classes, most) = series_of(history, class_of);
    let class_labels = ("Calls without a value, by class", "Calls without a value by class");
    let class_labels = labels(class_labels.0, class_labels.1, number(most), history);
    let (boundaries, most) = series_of(history, boundary_of);
    let boundary_labels = ("Failures, by boundary", "Failures by the layer in which they began");
    let boundary_labels = labels(boundary_labels.0, boundary_labels.1, number(most), history);
    let rows = html! {
        @for step in history.steps.iter().rev() {
            @for failure in &step.failures {
                tr {
                    th scope="row" { (time(Some(&step.at))) }
                    td { (plain(&failure.status)) }
                    td { (failure.class.as_deref().map_or_else(|| "-".to_owned(), plain)) }
                    td { (failure.boundary.as_deref().map_or_else(|| "-".to_owned(), plain)) }
                    td.number { (number(failure.calls)) }
                }
            }
        }
    };
    html! {
        @if classes.is_empty() { p { "No call ended without a value in this time." } }
        @else {
            (chart::bars(&class_labels, &classes))
            @if !boundaries.is_empty() { (chart::bars(&boundary_labels, &boundaries)) }
            details {
                summary { "Calls without a value as a table" }
                (table("Calls without a value, by time", &["From", "Status", "Class", "Boundary", "Calls"], &rows))
            }
            p { a href=(format!("{CONSOLE}/calls?failed=true")) { "Calls without a value" } }
        }
    }
}

fn circuits(health: &HealthReport) -> Markup {
    let rows = html! {
        @for circuit in health.circuits.iter().flatten() {
            tr {
                th.wide scope="row" { (plain(&circuit.connector)) }
                td { (plain(&circuit.host)) }
                td {
                    span.bad[circuit.state == "open"].doubtful[circuit.state == "half_open"] { (plain(&circuit.state)) }
                }
                td.number { (circuit.failures) }
                td { (circuit.cause.as_deref().map_or_else(|| "-".to_owned(), plain)) }
                td.number {
                    (circuit.retry_after_ms.map_or_else(|| "-".to_owned(), |millis| duration(millis.saturating_mul(1_000))))
                }
                td.wide { (plain(&circuit.refused_bindings.join(", "))) }
            }
        }
    };
    let header =
        ["Connector", "Host", "State", "Failures", "Cause", "Next request in", "Open for these bindings"];
    html! {
        @match &health.circuits {
            None => p.bad { "The circuits cannot be read." },
            Some(circuits) if circuits.is_empty() => p { "All are closed, and none counts failures." },
            Some(_) => (table("Circuits", &header, &rows)),
        }
    }
}

fn rate_limits(health: &HealthReport) -> Markup {
    let rows = html! {
        @for limit in &health.rate_limits {
            tr {
                th.wide scope="row" { (plain(&limit.connector)) }
                td.number { (number(limit.requests.into())) }
                td { (span(limit.seconds)) }
                td.number { (number(limit.burst.into())) }
                td.wide { (used(limit)) }
            }
        }
    };
    html! {
        @if health.rate_limits.is_empty() { p { "No installed connector has one." } }
        @else {
            (table("Rate limits at each host", &["Connector", "Requests", "In", "At once", "In use now"], &rows))
            p {
                a href=(format!("{CONSOLE}/calls?code=host_rate_limit")) { "Calls that a rate limit ended" }
            }
        }
    }
}

fn used(limit: &ConnectorRateLimit) -> Markup {
    html! {
        @match limit.used.as_deref() {
            None => "shared with other hosts, and not shown",
            Some([]) => "nothing, by this process",
            Some(hosts) => @for at in hosts {
                div {
                    span.doubtful[at.wait_ms > 0] { (number(at.requests)) " of " (number(limit.burst.into())) }
                    " to " (plain(&at.host))
                    @if at.wait_ms > 0 { ", another one waits " (duration(at.wait_ms.saturating_mul(1_000))) }
                }
            },
        }
    }
}

fn waiting(calls: &WaitingCalls, label: &str, none: &str) -> Markup {
    html! {
        @if calls.count == 0 { p { (none) } }
        @else {
            (call_pages::calls_table(label, &calls.calls))
            @if calls.count > calls.calls.len() as u64 { p { "These are the newest of " (number(calls.count)) "." } }
            p { code { "cofferdam recover list" } " shows what may be done about them." }
        }
    }
}

fn audit_log(health: &HealthReport) -> Markup {
    html! {
        @match &health.log {
            None => p { "Nothing was recorded yet." },
            Some(log) => (usage(log)),
        }
        h3 { "Verification" }
        @match &health.verification {
            None => p.doubtful { "It was not verified from this home. " code { "cofferdam audit verify" } " verifies it." },
            Some(last) => (verification(last)),
        }
    }
}

fn usage(log: &LogUsage) -> Markup {
    html! {
        dl {
            dt { "Disk" } dd { (bytes(log.bytes)) }
            dt { "Entries" } dd { (bytes(log.entries_bytes)) }
            dt { "Sealed requests and outcomes" } dd { (bytes(log.sealed_bytes)) }
            dt { "Index" } dd { (bytes(log.index_bytes)) }
            dt { "Everything else" } dd { (bytes(log.other_bytes)) }
            dt { "Oldest call" } dd { (time(log.oldest.as_deref())) }
            dt { "Calls are kept" }
            dd { (log.retention_seconds.map_or_else(|| "until an operator removes them".to_owned(), span)) }
            @if log.retention_seconds.is_some() {
                dt { "Old calls were last looked for" } dd { (time(log.retained.as_deref())) }
                dt { "The oldest call may be removed from" } dd { (time(log.oldest_expires.as_deref())) }
            }
        }
    }
}

fn verification(last: &VerificationResult) -> Markup {
    html! {
        dl {
            dt { "Last verified" } dd { (time(Some(&last.at))) }
            dt { "Result" }
            dd {
                @if last.holds { span.good { "it holds together" } } @else { span.bad { "it does NOT hold together" } }
                @if last.findings > 0 { ", " (number(last.findings)) " findings" }
            }
            dt { "Verified entries" } dd { (number(last.entries)) ", and nothing that was recorded later" }
        }
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_audit::DurationPercentiles;

    use super::*;

    fn step(calls: u64, seconds: u64) -> HistoryStepView {
        HistoryStepView {
            at: "2026-11-22T12:00:00Z".to_owned(),
            seconds,
            calls,
            failed: 0,
            durations: DurationPercentiles { p50_us: None, p90_us: None, p99_us: None, max_us: None },
            failures: Vec::new(),
        }
    }

    #[test]
    fn rates_are_those_of_the_time_that_passed() {
        assert_eq!(thousandths(rate(&step(3_600, 3_600))), "1");
        assert_eq!(thousandths(rate(&step(5, 3_600))), "0.001");
        assert_eq!(thousandths(rate(&step(5_000_000, 2))), "2,500,000");
        assert_eq!(thousandths(rate(&step(3, 2))), "1.5");
    }

    #[test]
    fn every_class_and_boundary_has_its_colour() {
        assert!(FailureClass::ALL.len() < COLOURS.len() && FailureBoundary::ALL.len() < COLOURS.len());
        let failure = |class: Option<&str>, boundary: Option<&str>| FailureCount {
            status: "cancelled".to_owned(),
            class: class.map(str::to_owned),
            boundary: boundary.map(str::to_owned),
            calls: 1,
        };
        let class = Some("binding_required");
        assert_eq!(class_of(&failure(class, None)), Some((1, "binding_required")));
        assert_eq!(class_of(&failure(None, None)), Some((9, "cancelled")));
        assert_eq!(boundary_of(&failure(class, Some("external"))), Some((4, "external")));
        assert_eq!(boundary_of(&failure(class, None)), Some((5, "not known")));
        assert_eq!(boundary_of(&failure(None, Some("external"))), None);
    }
}
