//! A call as a picture: its attempts with their parts and requests, and the waits, on one axis of time. The tables of
//! the page have the numbers.

use std::iter;

use cofferdam_server::http_api::{AttemptReport, LoggedCallView, LoggedEventView, RequestReport};
use jiff::Timestamp;
use maud::{Markup, html};

use crate::chart::scale;
use crate::format::{duration, number, plain};
use crate::network_page::short;

/// The size of the picture in its units: the width of the names before the axis, of both together, and of a row.
const NAMES: u64 = 240;
const WIDTH: u64 = 1_000;
const ROW: u64 = 22;

/// The most requests of an attempt, and the most of its waits, that are drawn.
const DRAWN: usize = 64;

/// The classes in the style sheet of requests, and of waits.
const ANSWERED: &str = "s3";
const FAILED: &str = "s1";
const WAIT: &str = "limit";

/// A bar.
struct Bar {
    /// Its beginning and its end, in microseconds since 1970.
    from: i64,
    until: i64,
    /// The class in the style sheet that gives it its colour.
    class: &'static str,
    /// Its description.
    text: String,
}

/// A row of the picture.
struct Row {
    name: String,
    bars: Vec<Bar>,
    /// The row in words; empty for a request, which its attempt counts.
    text: String,
}

/// The time from when a call was received until it ended, or until its last event.
struct Axis {
    /// The time at which the call was received, in microseconds since 1970.
    begin: i64,
    /// The length in microseconds; never 0.
    length: u64,
}

impl Axis {
    fn new(call: &LoggedCallView) -> Self {
        let begin = call.call.at.as_microsecond();
        let length = call.call.duration_us.unwrap_or_else(|| {
            let last = call.events.iter().map(|event| micros(&event.at)).max().unwrap_or(begin);
            u64::try_from(last.saturating_sub(begin)).unwrap_or(0)
        });
        Self { begin, length: length.max(1) }
    }

    /// Returns the distance of a time from the beginning in units. It is within the axis, also if a clock has leapt.
    fn place(&self, at: i64) -> u64 {
        let since = u64::try_from(at.saturating_sub(self.begin)).unwrap_or(0);
        scale(since.min(self.length), self.length, WIDTH - NAMES)
    }

    /// Returns the left end and the width of a bar. Nothing that happened is invisible.
    fn extent(&self, bar: &Bar) -> (u64, u64) {
        let left = self.place(bar.from).min(WIDTH - NAMES - 1);
        (NAMES + left, self.place(bar.until).saturating_sub(left).max(1))
    }
}

/// Returns a time in microseconds since 1970; 0 for a text that is no time.
fn micros(at: &str) -> i64 {
    at.parse::<Timestamp>().map_or(0, Timestamp::as_microsecond)
}

/// Returns the time `took` microseconds after another one.
fn after(from: i64, took: u64) -> i64 {
    from.saturating_add(i64::try_from(took).unwrap_or(i64::MAX))
}

/// Returns the parts of an attempt in their order: the name, the duration in microseconds, and the class in the style
/// sheet.
fn parts(attempt: &AttemptReport) -> [(&'static str, u64, &'static str); 4] {
    let phases = attempt.phases;
    [
        ("queue and load", phases.admit_us, "queue"),
        ("record", phases.record_us, "s2"),
        ("sandbox", phases.instantiate_us, "s4"),
        ("connector", phases.guest_us, "used"),
    ]
}

/// Returns the parts of an attempt with their durations in words.
pub(crate) fn parts_text(attempt: &AttemptReport) -> String {
    parts(attempt).map(|(name, took, _)| format!("{name} {}", duration(took))).join(", ")
}

/// Returns the row of an attempt, and those of its requests.
fn attempt_rows(attempt: &AttemptReport) -> Vec<Row> {
    let parts = parts(attempt);
    let whole = parts.iter().fold(0_u64, |sum, (_, took, _)| sum.saturating_add(*took));
    // Only the end of an attempt is recorded.
    let mut from = micros(&attempt.ended).saturating_sub(after(0, whole));
    let bars = parts.into_iter().filter(|(_, took, _)| *took > 0).map(|(name, took, class)| {
        let until = after(from, took);
        let bar = Bar { from, until, class, text: format!("{name} {}", duration(took)) };
        from = until;
        bar
    });
    let (bars, requests) = (bars.collect(), number(attempt.requests.len() as u64));
    let text = format!("attempt {}: {}, requests {requests}", attempt.attempt, parts_text(attempt));
    let own = Row { name: format!("Attempt {}", attempt.attempt), bars, text };
    iter::once(own).chain(attempt.requests.iter().take(DRAWN).map(request_row)).collect()
}

fn request_row(request: &RequestReport) -> Row {
    let (from, took) = (micros(&request.at), request.ms.saturating_mul(1_000));
    let is_answered = request.code.is_none() && request.status.is_some_and(|status| status < 400);
    let class = if is_answered { ANSWERED } else { FAILED };
    let name = format!("{} {}", request.method, request.host);
    let text = format!("{} {}", plain(&name), duration(took));
    Row { name, bars: vec![Bar { from, until: after(from, took), class, text }], text: String::new() }
}

/// Returns the row of a wait that begins with this event.
fn wait_row(name: &str, event: &LoggedEventView) -> Row {
    let delay = event.facts.get("delay_ms").and_then(|delay| delay.as_u64()).unwrap_or(0);
    let (from, took) = (micros(&event.at), delay.saturating_mul(1_000));
    let text = format!("{name} {}", duration(took));
    let bar = Bar { from, until: after(from, took), class: WAIT, text: text.clone() };
    Row { name: name.to_owned(), bars: vec![bar], text }
}

/// Returns the rows in the order of the events.
fn rows(call: &LoggedCallView) -> Vec<Row> {
    let mut attempts = call.ended_attempts.iter().peekable();
    // The requests of an attempt wait before it ends.
    let (mut rows, mut waits) = (Vec::new(), Vec::new());
    for event in &call.events {
        match event.name.as_str() {
            "rate_delayed" if waits.len() < DRAWN => waits.push(wait_row("wait for the rate limit", event)),
            "attempt_ended" => {
                // An event that this version does not understand has no attempt.
                if let Some(attempt) = attempts.next_if(|attempt| attempt.ended == event.at) {
                    rows.extend(attempt_rows(attempt));
                    rows.append(&mut waits);
                }
            }
            "retry_scheduled" => rows.push(wait_row("wait before a retry", event)),
            _ => {}
        }
    }
    rows.extend(attempts.flat_map(attempt_rows));
    rows.append(&mut waits);
    rows
}

/// Returns the picture; nothing for a call without attempts and waits.
pub(crate) fn waterfall(call: &LoggedCallView) -> Markup {
    let (axis, rows) = (Axis::new(call), rows(call));
    if rows.is_empty() {
        return html! {};
    }
    let end = if call.call.duration_us.is_some() { "it ended" } else { "its last event" };
    let caption = format!("From when the call was received until {end}: {}", duration(axis.length));
    let texts: Vec<_> = rows.iter().map(|row| row.text.as_str()).filter(|text| !text.is_empty()).collect();
    let text = format!("{caption}; {}", texts.join("; "));
    let height = ROW.saturating_mul(rows.len() as u64);
    let delays = call.events.iter().filter(|event| event.name == "rate_delayed").count();
    let has_more = delays > DRAWN || call.ended_attempts.iter().any(|attempt| attempt.requests.len() > DRAWN);
    html! {
        figure {
            figcaption {
                (caption)
                @if has_more { "; at most " (DRAWN) " requests and " (DRAWN) " waits of an attempt" }
            }
            div.scroll role="region" aria-label="Waterfall of the call" tabindex="0" {
                svg.map role="img" aria-label=(text) viewBox=(format!("0 0 {WIDTH} {height}")) {
                    title { (text) }
                    @for (row, top) in rows.iter().zip((0..height).step_by(ROW as usize)) {
                        text x="0" y=(top + 15) { (short(&row.name)) }
                        line.base x1=(NAMES) y1=(top + ROW) x2=(WIDTH) y2=(top + ROW) {}
                        @for bar in &row.bars {
                            @let (left, width) = axis.extent(bar);
                            rect class=(bar.class) x=(left) y=(top + 4) width=(width) height="14" {
                                title { (bar.text) }
                            }
                        }
                    }
                }
            }
            ul.legend {
                @for (class, name) in [
                    ("queue", "queue and load"),
                    ("s2", "record"),
                    ("s4", "sandbox"),
                    ("used", "connector"),
                    (ANSWERED, "request with a status below 400"),
                    (FAILED, "other request"),
                    (WAIT, "wait"),
                ] {
                    li {
                        svg.swatch viewBox="0 0 10 10" aria-hidden="true" {
                            rect class=(class) width="10" height="10" {}
                        }
                        (name)
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_audit::CallStatus;
    use cofferdam_core::failure::AuditId;
    use cofferdam_server::http_api::{AttemptPhases, AttemptUsage, CallRow};

    use super::*;

    /// The time at which calls are received, without its last digits.
    const RECEIVED: &str = "2026-11-22T12:00:00";

    fn at(millis: u32) -> String {
        format!("{RECEIVED}.{millis:03}000Z")
    }

    fn attempt(number: u32, ended: &str, [admit, record, sandbox, guest]: [u64; 4]) -> AttemptReport {
        AttemptReport {
            attempt: number,
            connector: "github://acme/a@1.0.0".to_owned(),
            ended: ended.to_owned(),
            status: "value".to_owned(),
            class: None,
            code: None,
            phases: AttemptPhases {
                admit_us: admit,
                record_us: record,
                instantiate_us: sandbox,
                guest_us: guest,
            },
            usage: AttemptUsage {
                fuel: 0,
                fuel_limit: 0,
                memory_bytes: 0,
                memory_limit_bytes: 0,
                wall_us: 0,
                wall_limit_ms: 0,
                requests: 0,
                bytes_in: 0,
                bytes_out: 0,
            },
            requests: Vec::new(),
        }
    }

    fn request(at: &str, ms: u64, status: u16) -> RequestReport {
        RequestReport {
            at: at.to_owned(),
            method: "GET".to_owned(),
            host: "api.example:443".to_owned(),
            status: Some(status),
            code: None,
            phase: None,
            ms,
            bytes_sent: 0,
            bytes_received: 0,
            keyed: false,
            aborted: false,
            bindings: Vec::new(),
        }
    }

    fn event(name: &str, at: &str, delay_ms: u64) -> LoggedEventView {
        let facts = serde_json::Map::from_iter([("delay_ms".to_owned(), delay_ms.into())]);
        LoggedEventView { seq: 1, at: at.to_owned(), name: name.to_owned(), facts }
    }

    fn call(
        at: &str,
        duration_us: Option<u64>,
        ended_attempts: Vec<AttemptReport>,
        events: Vec<LoggedEventView>,
    ) -> LoggedCallView {
        let call = CallRow {
            audit_id: AuditId::mint(),
            at: at.parse().unwrap_or_default(),
            connector: "github://acme/a@1.0.0".to_owned(),
            op: "fetch".to_owned(),
            action: None,
            step: None,
            actor: "ada".to_owned(),
            idempotent: true,
            status: CallStatus::Value,
            class: None,
            code: None,
            duration_us,
            attempts: None,
        };
        LoggedCallView {
            call,
            hash: None,
            signer: None,
            profile: None,
            key: None,
            key_undecided: false,
            error: None,
            ended_attempts,
            events,
            entries: Vec::new(),
        }
    }

    /// A call of one second with a retry after 300 ms, and a request of the second attempt.
    fn retried() -> LoggedCallView {
        let mut second = attempt(2, &at(999), [0, 0, 0, 499_000]);
        second.requests = vec![request(&at(600), 100, 200)];
        let events = vec![
            event("received", &at(0), 0),
            event("rate_delayed", &at(160), 20),
            event("attempt_ended", &at(200), 0),
            event("retry_scheduled", &at(200), 300),
            event("attempt_ended", &at(999), 0),
        ];
        let first = attempt(1, &at(200), [50_000; 4]);
        call(&at(0), Some(1_000_000), vec![first, second], events)
    }

    #[test]
    fn bars_are_at_their_times() {
        let picture = waterfall(&retried()).into_string();
        for shape in [
            "<rect class=\"queue\" x=\"240\" y=\"4\" width=\"38\" height=\"14\">",
            "<rect class=\"s2\" x=\"278\" y=\"4\" width=\"38\" height=\"14\">",
            "<rect class=\"s4\" x=\"316\" y=\"4\" width=\"38\" height=\"14\">",
            "<rect class=\"used\" x=\"354\" y=\"4\" width=\"38\" height=\"14\">",
            "<rect class=\"limit\" x=\"361\" y=\"26\" width=\"15\" height=\"14\">",
            "<rect class=\"limit\" x=\"392\" y=\"48\" width=\"228\" height=\"14\">",
            "<rect class=\"used\" x=\"620\" y=\"70\" width=\"379\" height=\"14\">",
            "<rect class=\"s3\" x=\"696\" y=\"92\" width=\"76\" height=\"14\">",
            "viewBox=\"0 0 1000 110\"",
        ] {
            assert!(picture.contains(shape), "{shape}: {picture}");
        }
        let text = "until it ended: 1.0 s; attempt 1: queue and load 50.0 ms, record 50.0 ms, sandbox 50.0 ms, \
                    connector 50.0 ms, requests 0; wait for the rate limit 20.0 ms; wait before a retry 300.0 ms; \
                    attempt 2:";
        assert!(picture.contains(text), "{picture}");
        assert_eq!(waterfall(&call(&at(0), Some(1), Vec::new(), Vec::new())).into_string(), "");
    }

    #[test]
    fn rows_are_in_the_order_of_events() {
        let names = |call: &LoggedCallView| rows(call).into_iter().map(|row| row.name).collect::<Vec<_>>();
        let expected = [
            "Attempt 1",
            "wait for the rate limit",
            "wait before a retry",
            "Attempt 2",
            "GET api.example:443",
        ];
        assert_eq!(names(&retried()), expected);
        // An attempt is drawn if its event is not understood, and a wait if its attempt has no end.
        let mut other = retried();
        other.events.retain(|event| event.name != "attempt_ended");
        let expected = [
            "wait before a retry",
            "Attempt 1",
            "Attempt 2",
            "GET api.example:443",
            "wait for the rate limit",
        ];
        assert_eq!(names(&other), expected);
    }

    #[test]
    fn a_call_without_an_end_is_drawn_to_its_last_event() {
        let mut running = retried();
        running.call.duration_us = None;
        assert_eq!(Axis::new(&running).length, 999_000);
        let picture = waterfall(&running).into_string();
        assert!(picture.contains("until its last event: 999.0 ms"), "{picture}");
    }

    #[test]
    fn many_requests_are_not_all_drawn() {
        let mut many = attempt(1, &at(200), [1, 1, 1, 1]);
        many.requests = vec![request(&at(100), 1, 503); DRAWN + 1];
        let delays = (0..DRAWN + 1).map(|_| event("rate_delayed", &at(100), 1));
        let call = call(&at(0), Some(1_000_000), vec![many], delays.collect());
        assert_eq!(rows(&call).len(), 1 + 2 * DRAWN);
        let picture = waterfall(&call).into_string();
        assert!(picture.contains("; at most 64 requests and 64 waits of an attempt"), "{picture}");
        assert_eq!(picture.matches("<rect class=\"s1\" x").count(), DRAWN);
    }

    #[test]
    fn hostile_times_stay_within_the_axis() {
        let times =
            ["", "soon", "9999-12-30T22:00:00Z", "-009999-01-02T01:59:59Z", &at(0), &at(500), &at(999)];
        let amounts = [0, 1, 1_000, u64::MAX / 2, u64::MAX];
        for received in times {
            for other in times {
                for amount in amounts {
                    for took in [None, Some(0), Some(1_000_000), Some(u64::MAX)] {
                        let mut attempt = attempt(1, other, [amount; 4]);
                        attempt.requests = vec![request(other, amount, 200)];
                        let events = ["rate_delayed", "attempt_ended", "retry_scheduled"]
                            .map(|name| event(name, other, amount));
                        let call = call(received, took, vec![attempt], events.to_vec());
                        let (axis, rows) = (Axis::new(&call), rows(&call));
                        assert_eq!(rows.len(), 4);
                        for bar in rows.iter().flat_map(|row| &row.bars) {
                            let (left, width) = axis.extent(bar);
                            let is_within = left >= NAMES && width >= 1 && left + width <= WIDTH;
                            assert!(is_within, "{received} {other} {amount} {took:?}: {left} {width}");
                        }
                        drop(waterfall(&call));
                    }
                }
            }
        }
    }
}
