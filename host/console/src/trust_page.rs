//! The page about trust over time: the changes of operators, as a timeline and as a table.

use std::collections::BTreeMap;

use cofferdam_server::http_api::{ChangeArea, ChangePage, ChangeView, ChangedFact};
use jiff::Timestamp;
use maud::{Markup, html};

use crate::chart::scale;
use crate::format::{encoded, plain};
use crate::frame::{Area, Page, table, time};
use crate::router::CONSOLE;

/// The number of changes in a page.
pub(crate) const PAGE: &str = "200";

/// The width of a lane in the units of its picture, which is stretched to the page.
const WIDTH: u64 = 1_000;

/// The parameters of the page: those of the HTTP API.
pub(crate) type ChangeQuery = BTreeMap<String, String>;

const fn title(area: ChangeArea) -> &'static str {
    match area {
        ChangeArea::Keys => "Keys",
        ChangeArea::Packages => "Packages",
        ChangeArea::Grants => "Grants",
        ChangeArea::Bindings => "Bindings",
        ChangeArea::Approvals => "Approvals",
        ChangeArea::Other => "Other",
    }
}

/// Returns the kind of a change in words.
fn words(kind: &str) -> String {
    match kind {
        "signature" => "signature replaced".to_owned(),
        "first_grants" => "grants accepted for the first time".to_owned(),
        "wider_grants" => "wider grants accepted".to_owned(),
        "same_grants" => "grants accepted, no wider".to_owned(),
        "floor" => "minimum version".to_owned(),
        "threshold" => "required signatures".to_owned(),
        other => plain(other),
    }
}

/// The page about changes.
pub(crate) fn show(query: &ChangeQuery, page: &ChangePage) -> Page {
    let rows = html! { @for change in &page.changes { (row(change)) } };
    let body = html! {
        (filter(query))
        @if page.changes.is_empty() { p { "No change on record fits." } }
        @else {
            (timeline(page))
            (table("Changes, the newest first", &["Time", "Change", "Subject", "Different afterwards", "User"], &rows))
        }
        nav aria-label="Pages of changes" {
            @if let Some(next) = &page.next { a rel="next" href=(older_path(query, next)) { "Older changes" } }
        }
    };
    Page::new(Area::Trust, "Trust over time", body)
}

/// Returns the path of the next page of the same filter.
fn older_path(query: &ChangeQuery, before: &str) -> String {
    let kept = query.iter().filter(|(name, _)| *name != "before" && *name != "limit");
    let pairs = kept.map(|(name, value)| (name.as_str(), value.as_str())).chain([("before", before)]);
    let pairs: Vec<_> = pairs.map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    format!("{CONSOLE}/trust?{}", pairs.join("&"))
}

fn filter(query: &ChangeQuery) -> Markup {
    let given = |name: &str| query.get(name).map(String::as_str);
    let text = |name: &str, title: &str, example: &str| {
        html! {
            label {
                (title)
                input name=(name) value=(plain(given(name).unwrap_or_default())) placeholder=(example) autocomplete="off";
            }
        }
    };
    html! {
        form.filter method="get" action=(format!("{CONSOLE}/trust")) aria-label="Filter" {
            label {
                "About"
                select name="area" {
                    option value="" { "everything but approvals" }
                    @for area in ChangeArea::ALL {
                        option value=(area.name()) selected[given("area") == Some(area.name())] { (title(area)) }
                    }
                }
            }
            (text("since", "Since", "2026-11-01T00:00:00Z"))
            (text("until", "Until", "2026-12-01T00:00:00Z"))
            button { "Filter" }
            a href=(format!("{CONSOLE}/trust")) { "All changes" }
        }
    }
}

/// Returns a line for each area, with a mark for each change at its time.
fn timeline(page: &ChangePage) -> Markup {
    let moment = |change: &ChangeView| change.at.parse::<Timestamp>().ok().map(Timestamp::as_second);
    let moments: Vec<_> = page.changes.iter().filter_map(moment).collect();
    let (first, last) = (moments.iter().min().copied(), moments.iter().max().copied());
    let position = |change: &ChangeView| {
        let since_first = moment(change)?.checked_sub(first?)?.unsigned_abs();
        // Also the first and the last mark are whole.
        Some(5 + scale(since_first, last?.checked_sub(first?)?.unsigned_abs(), WIDTH - 10))
    };
    let times = [page.changes.last(), page.changes.first()];
    html! {
        figure {
            figcaption { "Changes by what they are about; high marks allow more than before, dashed ones failed" }
            @for area in ChangeArea::ALL {
                @let changes: Vec<_> = page.changes.iter().filter(|change| change.area == area.name()).collect();
                @let wider = changes.iter().filter(|change| change.is_wider).count();
                @let text = format!("{}: {} changes, {wider} allow more than before. The table below has them.", title(area), changes.len());
                // Approvals are read only for their own area: an empty line would say that there are none.
                @if area != ChangeArea::Approvals || !changes.is_empty() {
                    div.lane {
                        span { (title(area)) }
                        svg role="img" aria-label=(text) viewBox=(format!("0 0 {WIDTH} 40")) preserveAspectRatio="none" {
                            title { (text) }
                            line.base x1="0" y1="39" x2=(WIDTH) y2="39" vector-effect="non-scaling-stroke" {}
                            @for change in &changes {
                                @if let Some(x) = position(change) {
                                    line.mark.wider[change.is_wider].failed[change.failed] x1=(x) x2=(x)
                                        y1=(if change.is_wider { 2 } else { 18 }) y2="38" vector-effect="non-scaling-stroke" {}
                                }
                            }
                        }
                    }
                }
            }
            p.axis { @for at in times { span { (time(at.map(|change| change.at.as_str()))) } } }
        }
    }
}

fn row(change: &ChangeView) -> Markup {
    html! {
        tr {
            td { (time(Some(&change.at))) }
            th scope="row" {
                (words(&change.kind))
                @if change.is_wider { " " span.bad { "allows more" } }
                @if change.failed { " " span.doubtful { "failed" } }
            }
            td.wide { code { (plain(&change.subject)) } }
            td.wide { @for fact in &change.facts { (difference(fact)) } }
            td.wide { (plain(&change.user)) }
        }
    }
}

fn difference(fact: &ChangedFact) -> Markup {
    let name = plain(&fact.name).replace('_', " ");
    html! {
        @if let ([before], [after]) = (fact.before.as_slice(), fact.after.as_slice()) {
            div { (name) ": " code { (plain(before)) } " to " code { (plain(after)) } }
        } @else {
            @for value in fact.added() { div { (name) ": added " code { (plain(value)) } } }
            @for value in fact.removed() { div.dim { (name) ": removed " code { (plain(value)) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: &str, area: &str, is_wider: bool) -> ChangeView {
        ChangeView {
            at: at.to_owned(),
            user: "uid 0 (root)".to_owned(),
            action: "trust".to_owned(),
            area: area.to_owned(),
            kind: "trust".to_owned(),
            subject: "ed25519:00".to_owned(),
            failed: false,
            is_wider,
            facts: Vec::new(),
        }
    }

    #[test]
    fn marks_are_at_their_times() {
        let changes = vec![
            change("2026-11-22T14:00:00.000000Z", "keys", true),
            change("2026-11-22T13:00:00.000000Z", "bindings", false),
            change("2026-11-22T12:00:00.000000Z", "keys", false),
        ];
        let chart = timeline(&ChangePage { changes, next: None }).into_string();
        for mark in [
            "class=\"mark wider\" x1=\"995\" x2=\"995\" y1=\"2\"",
            "class=\"mark\" x1=\"500\" x2=\"500\" y1=\"18\"",
            "class=\"mark\" x1=\"5\" x2=\"5\" y1=\"18\"",
            "aria-label=\"Keys: 2 changes, 1 allow more than before.",
        ] {
            assert!(chart.contains(mark), "{mark}: {chart}");
        }
        assert!(!chart.contains("Approvals"), "they are not read for this page: {chart}");
    }

    #[test]
    fn approvals_have_a_line_in_their_area() {
        let changes = vec![change("2026-11-22T14:00:00Z", "approvals", false)];
        let chart = timeline(&ChangePage { changes, next: None }).into_string();
        assert!(chart.contains("aria-label=\"Approvals: 1 changes, 0 allow more than before."), "{chart}");
    }

    #[test]
    fn a_single_change_and_unreadable_times_have_a_timeline() {
        let one = ChangePage { changes: vec![change("2026-11-22T14:00:00Z", "keys", false)], next: None };
        assert!(timeline(&one).into_string().contains("x1=\"5\""));
        let none = ChangePage { changes: vec![change("yesterday", "keys", false)], next: None };
        assert!(!timeline(&none).into_string().contains("class=\"mark"));
    }
}
