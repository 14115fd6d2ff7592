//! A trace as text: a line for each thing that happened, with a bar for its time.

use cofferdam_core::event::recorded::RecordedUsage;
use serde::Deserialize as _;
use serde_json::Value;

use super::file::{EventCategory, TraceEvent, TraceFile};
use crate::layout::{Page, TextStyle, bytes};

/// The length of the bars, in columns.
const BAR: usize = 24;

/// One line of the waterfall.
struct Row<'t> {
    event: &'t TraceEvent,
    /// The number of host calls in this row.
    calls: u64,
    /// True if they are calls of several functions.
    is_mixed: bool,
    end: f64,
}

/// Shows the trace; with `verbose` each host call, and the contents of requests.
pub(super) fn show(trace: &TraceFile, verbose: bool, page: &mut Page) {
    let call = &trace.call;
    page.line(&format!("{} {} ({})", call.connector, call.operation, call.audit_id));
    let attempts = trace.events.iter().filter(|event| event.cat == EventCategory::Attempt);
    for attempt in attempts.filter(|event| event.name.starts_with("attempt")) {
        show_attempt(trace, attempt, verbose, page);
    }
}

fn show_attempt(trace: &TraceFile, attempt: &TraceEvent, verbose: bool, page: &mut Page) {
    let (start, whole) = (attempt.ts, attempt.dur.unwrap_or_default());
    page.heading(&format!("{}: {}", attempt.name, millis(whole)));
    if let Some(failure) = attempt.args.get("failure").and_then(Value::as_str) {
        page.styled(TextStyle::Bad, failure);
    }
    for frame in attempt.args.get("frames").and_then(Value::as_array).into_iter().flatten() {
        page.line(&format!("  in {}", frame.as_str().unwrap_or_default()));
    }
    for stream in ["stdout", "stderr"] {
        let text = attempt.args.get(stream).and_then(Value::as_str).unwrap_or_default();
        text.lines().for_each(|line| {
            page.line(&format!("{stream}: {line}"));
        });
    }
    let usage = attempt.args.get("usage").map(RecordedUsage::deserialize);
    if let Some(Ok(usage)) = usage {
        let percent = usage.fuel.saturating_mul(100).checked_div(usage.fuel_limit).unwrap_or_default();
        let (memory, limit) = (bytes(usage.memory_bytes), bytes(usage.memory_limit_bytes));
        page.line(&format!("fuel {} ({percent} % of the limit), memory {memory} of {limit}", usage.fuel));
    }
    for row in rows(trace, attempt, verbose) {
        let event = row.event;
        let bar = bar(event.ts - start, row.end - start, whole);
        let at = millis(event.ts - start);
        match event.cat {
            EventCategory::Log => {
                let level = event.args.get("level").and_then(Value::as_str).unwrap_or_default();
                page.line(&format!("{at:<11}{bar} {level}: {}", event.name));
            }
            _ => {
                let took = millis(row.end - event.ts);
                let name = match row.calls {
                    1 => event.name.clone(),
                    calls if row.is_mixed => format!("{calls} host calls"),
                    calls => format!("{} x{calls}", event.name),
                };
                let line = format!("{at:<11}{bar} {took:>10} {name}{}", ending(event));
                match is_bad(event) {
                    true => page.styled(TextStyle::Bad, &line),
                    false => page.line(&line),
                };
            }
        }
        if verbose {
            show_contents(event, page);
        }
    }
    let omitted = attempt.args.get("omitted_host_calls").and_then(Value::as_u64).unwrap_or_default();
    if omitted > 0 {
        page.line(&format!("and {omitted} more host calls"));
    }
}

/// Returns the events of an attempt in the order of their times. Host calls that follow each other are one row.
fn rows<'t>(trace: &'t TraceFile, attempt: &TraceEvent, verbose: bool) -> Vec<Row<'t>> {
    let is_shown = |event: &&TraceEvent| {
        event.pid == attempt.pid
            && event.cat != EventCategory::Viewer
            && !(event.cat == EventCategory::Attempt && event.name == attempt.name)
    };
    let mut events: Vec<_> = trace.events.iter().filter(is_shown).collect();
    events.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let mut rows: Vec<Row<'t>> = Vec::new();
    for event in events {
        let end = event.ts + event.dur.unwrap_or_default();
        match rows.last_mut() {
            Some(last)
                if !verbose
                    && event.cat == EventCategory::HostCall
                    && last.event.cat == EventCategory::HostCall =>
            {
                last.calls = last.calls.saturating_add(1);
                last.is_mixed |= last.event.name != event.name;
                last.end = last.end.max(end);
            }
            _ => rows.push(Row { event, calls: 1, is_mixed: false, end }),
        }
    }
    rows
}

/// Returns a bar from `from` to `to`, for times in a line of the length `whole`.
fn bar(from: f64, to: f64, whole: f64) -> String {
    let column = |time: f64| {
        let share = if whole > 0.0 { (time / whole).clamp(0.0, 1.0) } else { 0.0 };
        (0..BAR).rev().find(|column| share * BAR as f64 >= *column as f64).unwrap_or(0)
    };
    let (first, last) = (column(from), column(to));
    let sign = |at: usize| if (first..=last).contains(&at) { '=' } else { ' ' };
    format!("|{}|", (0..BAR).map(sign).collect::<String>())
}

/// Returns what came of a request.
fn ending(event: &TraceEvent) -> String {
    if event.cat != EventCategory::Request {
        return String::new();
    }
    let mut parts = Vec::new();
    if let Some(status) = event.args.get("status") {
        parts.push(status.to_string());
    }
    if let Some(code) = event.args.get("failure").and_then(Value::as_str) {
        parts.push(code.to_owned());
    }
    if event.args.get("aborted") == Some(&Value::Bool(true)) {
        parts.push("aborted".to_owned());
    }
    if event.args.get("with_key") == Some(&Value::Bool(true)) {
        parts.push("with the call's key".to_owned());
    }
    for name in event.args.get("credentials").and_then(Value::as_array).into_iter().flatten() {
        parts.push(format!("with {}", name.as_str().unwrap_or_default()));
    }
    format!(" -> {}", parts.join(", "))
}

fn is_bad(event: &TraceEvent) -> bool {
    let status = event.args.get("status").and_then(Value::as_u64);
    event.cat == EventCategory::Request && status.is_none_or(|status| status >= 400)
}

fn show_contents(event: &TraceEvent, page: &mut Page) {
    if event.cat == EventCategory::HostCall {
        return;
    }
    for (side, headers, body) in
        [(">", "request_headers", "request_body"), ("<", "response_headers", "response_body")]
    {
        for field in event.args.get(headers).and_then(Value::as_array).into_iter().flatten() {
            if let [Value::String(name), Value::String(value)] =
                field.as_array().map_or(&[][..], Vec::as_slice)
            {
                page.line(&format!("           {side} {name}: {value}"));
            }
        }
        if let Some(body) = event.args.get(body).and_then(Value::as_str) {
            page.line(&format!("           {side} {body}"));
        }
    }
}

fn millis(micros: f64) -> String {
    format!("{:.2} ms", micros / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_within_their_line() {
        assert_eq!(bar(0.0, 0.0, 0.0), format!("|={}|", " ".repeat(BAR - 1)));
        assert_eq!(bar(0.0, 100.0, 100.0), format!("|{}|", "=".repeat(BAR)));
        assert_eq!(bar(50.0, 50.0, 100.0).find('='), Some(1 + BAR / 2));
        assert_eq!(bar(-5.0, 500.0, 100.0), format!("|{}|", "=".repeat(BAR)));
    }
}
