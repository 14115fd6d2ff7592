//! The pages about calls: the audit log, filtered and paged, and one call with its attempts.

use std::collections::BTreeMap;

use cofferdam_audit::CallStatus;
use cofferdam_server::http_api::{
    AttemptReport, CallPage, CallRow, LoggedCallView, LoggedEntryView, LoggedEventView, RequestReport,
};
use maud::{Markup, html};

use crate::explanation::FailureExplanation;
use crate::format::{bytes, duration, encoded, number, percent, plain};
use crate::frame::{Area, Page, table, time, timestamp};
use crate::router::CONSOLE;
use crate::waterfall::{parts_text, waterfall};

/// The number of calls in a page.
pub(crate) const PAGE: &str = "50";

/// The fields of the filter that are texts: the parameter, its title, and an example.
const TEXTS: [(&str, &str, &str); 8] = [
    ("connector", "Connector", "github://acme/slack"),
    ("op", "Operation", ""),
    ("action", "Action", ""),
    ("code", "Code", ""),
    ("actor", "Actor", ""),
    ("key", "Idempotency key", ""),
    ("since", "Since", "2026-11-22T00:00:00Z"),
    ("until", "Until", "2026-11-23T00:00:00Z"),
];

/// The parameters of the page that select calls: those of the HTTP API.
pub(crate) type CallQuery = BTreeMap<String, String>;

/// Returns a link to the page about a call.
pub(crate) fn link(id: &str) -> Markup {
    html! { a href=(format!("{CONSOLE}/calls/{}", encoded(id))) { code { (plain(id)) } } }
}

fn style(status: &str) -> &'static str {
    match status {
        "value" | "running" => "good",
        "failure" | "refused" => "bad",
        _ => "doubtful",
    }
}

fn why(class: Option<&str>, code: Option<&str>) -> String {
    let words: Vec<_> = [class, code].into_iter().flatten().map(plain).collect();
    words.join(".")
}

/// The page about calls. `classes` are those of failures.
pub(crate) fn list(query: &CallQuery, page: &CallPage, classes: &[&str]) -> Page {
    let body = html! {
        (filter(query, classes))
        div #present {
            @if page.calls.is_empty() {
                p { "No call on record fits." }
            } @else {
                (calls_table("Calls", &page.calls))
            }
            nav aria-label="Pages of calls" {
                @if query.contains_key("before") { a href=(query_path(query, None)) { "Newest calls" } " " }
                @if let Some(next) = &page.next { a rel="next" href=(query_path(query, Some(next))) { "Older calls" } }
            }
        }
    };
    Page::new(Area::Calls, "Calls", body)
}

/// Returns a table of calls.
pub(crate) fn calls_table(label: &str, calls: &[CallRow]) -> Markup {
    let header = ["Time", "Call", "Connector", "Operation", "Status", "Actor", "Duration", "Attempts"];
    let rows = html! { @for call in calls { (row(call)) } };
    table(label, &header, &rows)
}

/// Returns the path of a page of the same filter.
fn query_path(query: &CallQuery, before: Option<&str>) -> String {
    let kept = query.iter().filter(|(name, _)| *name != "before" && *name != "limit");
    let pairs = kept.map(|(name, value)| (name.as_str(), value.as_str()));
    let pairs = pairs.chain(before.map(|before| ("before", before)));
    let pairs: Vec<_> = pairs.map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    format!("{CONSOLE}/calls?{}", pairs.join("&"))
}

fn filter(query: &CallQuery, classes: &[&str]) -> Markup {
    let given = |name: &str| query.get(name).map(String::as_str);
    let select = |name: &str, title: &str, values: &[&str]| {
        html! {
            label {
                (title)
                select name=(name) {
                    option value="" { "any" }
                    @for value in values { option value=(value) selected[given(name) == Some(*value)] { (value) } }
                }
            }
        }
    };
    html! {
        form.filter method="get" action=(format!("{CONSOLE}/calls")) aria-label="Filter" {
            @for (name, title, example) in TEXTS {
                label {
                    (title)
                    input name=(name) value=(plain(given(name).unwrap_or_default())) placeholder=(example) autocomplete="off";
                }
            }
            (select("status", "Status", &CallStatus::ALL.map(CallStatus::name)))
            (select("class", "Class", classes))
            (select("failed", "Failed", &["true"]))
            button { "Filter" }
            a href=(format!("{CONSOLE}/calls")) { "All calls" }
        }
    }
}

fn row(call: &CallRow) -> Markup {
    html! {
        tr {
            td { (timestamp(call.at)) }
            th.wide scope="row" { (link(call.audit_id.as_str())) }
            td { (plain(&call.connector)) }
            td { (plain(&call.op)) }
            td {
                span class=(style(call.status.name())) { (call.status.name()) }
                @if call.class.is_some() || call.code.is_some() {
                    div { (why(call.class.as_deref(), call.code.as_deref())) }
                }
            }
            td { (plain(&call.actor)) }
            td.number { (call.duration_us.map_or_else(|| "-".to_owned(), duration)) }
            td.number { (call.attempts.map_or_else(|| "-".to_owned(), |attempts| attempts.to_string())) }
        }
    }
}

/// The page about one call, with the explanation of its failure if there is one.
pub(crate) fn show(call: &LoggedCallView, explanation: Option<&FailureExplanation>) -> Page {
    let row = &call.call;
    let body = html! {
        @if row.class.is_some() || row.code.is_some() { (failure(call, explanation)) }
        (facts(call))
        @match row.status {
            CallStatus::Incomplete => p.panel {
                "Its process ended before it did. " code { "cofferdam recover list" } " shows what may be done about it."
            },
            CallStatus::Value => p { code { "cofferdam replay " (row.audit_id.as_str()) } " returns its recorded outcome again." },
            _ => "",
        }
        @if call.key_undecided { (undecided_key(row.audit_id.as_str())) }
        p { code { "cofferdam audit show " (row.audit_id.as_str()) } " shows its arguments, its outcome and its log, to the operator." }
        h2 { "Attempts" }
        @if call.ended_attempts.is_empty() { p { "No attempt ended." } }
        (waterfall(call))
        @for attempt in &call.ended_attempts { (describe(attempt)) }
        h2 { "Events" }
        (events(&call.events))
        h2 { "In the audit log" }
        (entries(&call.entries))
    };
    Page::new(Area::Calls, format!("{} of {}", plain(&row.op), plain(&row.connector)), body)
}

/// Returns what an operator may do about a call that ended, if what was done under its key is unknown.
fn undecided_key(id: &str) -> Markup {
    html! {
        p.panel {
            "It may have had its effect, and no call runs under its idempotency key until an operator decides. \
             Look at the service, and then write down what you found: "
            code { "cofferdam recover skip " (plain(id)) " --reason TEXT" }
            ". Then the key stays taken; if the effect is missing, " code { "--free-key" }
            " lets another call run under it."
        }
    }
}

fn failure(call: &LoggedCallView, explanation: Option<&FailureExplanation>) -> Markup {
    let row = &call.call;
    let fact = |name: &str| call.error.as_ref().and_then(|error| error.get(name));
    html! {
        div.panel {
            p { span class=(style(row.status.name())) { (row.status.name()) } " " code { (why(row.class.as_deref(), row.code.as_deref())) } }
            @if let Some(explanation) = explanation {
                p { (plain(&explanation.meaning)) }
                dl {
                    @if !explanation.fix.is_empty() { dt { "Fix" } dd { (plain(&explanation.fix)) } }
                    dt { "Fixed by" } dd { (plain(&explanation.fixed_by)) }
                    dt { "Call again" } dd { (plain(&explanation.advice)) }
                }
            }
            @if matches!(row.class.as_deref(), Some("capability_denied" | "binding_required")) {
                p { a href=(format!("{CONSOLE}/approvals")) { "Requests for grants" } " say what would allow it." }
            }
            @if let Some(boundary) = fact("boundary").and_then(|boundary| boundary.as_str()) {
                p { "The layer that failed: " (plain(boundary)) "." }
            }
        }
    }
}

fn facts(call: &LoggedCallView) -> Markup {
    let row = &call.call;
    html! {
        dl {
            dt { "Call" } dd { code { (row.audit_id.as_str()) } }
            dt { "Received" } dd { (timestamp(row.at)) }
            dt { "Status" } dd { span class=(style(row.status.name())) { (row.status.name()) } }
            dt { "Actor" } dd { (plain(&row.actor)) }
            @if let Some(action) = &row.action {
                dt { "Action" }
                dd { (plain(action)) @if let Some(step) = &row.step { ", step " (plain(step)) } }
            }
            dt { "Duration" } dd { (row.duration_us.map_or_else(|| "it has not ended".to_owned(), duration)) }
            dt { "May be repeated" } dd { (if row.idempotent { "yes" } else { "no" }) }
            @if let Some(key) = &call.key {
                dt { "Idempotency key" }
                dd { (if key == "given" { "given by the caller" } else { "made by the host" }) }
            }
            @if let Some(profile) = &call.profile { dt { "Retry profile" } dd { (plain(profile)) } }
            @if let Some(hash) = &call.hash { dt { "Package" } dd { code { (plain(hash)) } } }
            @if let Some(signer) = &call.signer { dt { "Signer" } dd { code { (plain(signer)) } } }
        }
    }
}

fn describe(attempt: &AttemptReport) -> Markup {
    let usage = &attempt.usage;
    let of = |used: String, share: String, limit: String| format!("{used}, {share} of {limit}");
    let wall_limit = usage.wall_limit_ms.saturating_mul(1_000);
    html! {
        h3 { "Attempt " (attempt.attempt) " of " (plain(&attempt.connector)) }
        p {
            span class=(style(&attempt.status)) { (plain(&attempt.status)) } " "
            (why(attempt.class.as_deref(), attempt.code.as_deref()))
            " ended " (time(Some(&attempt.ended)))
        }
        p.dim { (parts_text(attempt)) }
        dl {
            dt { "Fuel" }
            dd { (of(number(usage.fuel), percent(usage.fuel, usage.fuel_limit), number(usage.fuel_limit))) }
            dt { "Memory" }
            dd { (of(bytes(usage.memory_bytes), percent(usage.memory_bytes, usage.memory_limit_bytes), bytes(usage.memory_limit_bytes))) }
            dt { "Wall time" }
            dd { (of(duration(usage.wall_us), percent(usage.wall_us, wall_limit), duration(wall_limit))) }
            dt { "Requests" }
            dd { (number(usage.requests)) ", " (bytes(usage.bytes_out)) " sent, " (bytes(usage.bytes_in)) " received" }
        }
        @if !attempt.requests.is_empty() { (requests(&attempt.requests)) }
    }
}

fn requests(requests: &[RequestReport]) -> Markup {
    let result = |request: &RequestReport| {
        let status = request.status.map(|status| status.to_string());
        let code = request.code.as_deref().map(|code| match &request.phase {
            Some(phase) => format!("{} ({})", plain(code), plain(phase)),
            None => plain(code),
        });
        let aborted = request.aborted.then(|| "aborted".to_owned());
        [status, code, aborted].into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    let rows = html! {
        @for request in requests {
            tr {
                td { (time(Some(&request.at))) }
                th scope="row" { (plain(&request.method)) " " (plain(&request.host)) }
                td { (result(request)) }
                td.number { (number(request.ms)) " ms" }
                td.number { (bytes(request.bytes_sent)) }
                td.number { (bytes(request.bytes_received)) }
                td { (if request.keyed { "yes" } else { "no" }) }
                td { (plain(&request.bindings.join(", "))) }
            }
        }
    };
    let header = ["Sent", "Request", "Result", "Took", "Sent bytes", "Received bytes", "Key", "Credentials"];
    table("Requests of the attempt", &header, &rows)
}

fn events(events: &[LoggedEventView]) -> Markup {
    let facts = |event: &LoggedEventView| {
        let facts = event.facts.iter().map(|(name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{} {}", plain(name), plain(&value))
        });
        facts.collect::<Vec<_>>().join(", ")
    };
    let rows = html! {
        @for event in events {
            tr {
                td.number { (event.seq) }
                td { (time(Some(&event.at))) }
                th scope="row" { (plain(&event.name)) }
                td.wide { (facts(event)) }
            }
        }
    };
    table("Events of the call", &["No.", "Time", "Event", "Facts"], &rows)
}

fn entries(entries: &[LoggedEntryView]) -> Markup {
    let rows = html! {
        @for entry in entries {
            tr {
                th.wide scope="row" { code { (plain(&entry.writer)) } }
                td.number { (entry.n) }
            }
        }
    };
    html! {
        (table("Entries of the call", &["Journal", "Entry"], &rows))
        p {
            "Each line of a journal has the hash of the line before it. " code { "cofferdam audit verify" }
            " checks every line, and " code { "cofferdam audit show" } " has the hashes of these. "
            code { "docs/guides/verify-the-log.md" } " says how a copy is checked without cofferdam."
        }
    }
}
