//! The manual of limits and endings, `docs/reference/limits.md`. The file is committed so that it can be
//! read; this module, which exists in tests alone, generates it from the code.

use std::fmt::Write as _;
use std::sync::Arc;

use cofferdam_core::failure::{
    AuditId, Denial, DenialBoundary, DenialCode, Failure, FailureContext, LimitHit, LimitKind, RuntimeFault,
};
use cofferdam_core::limits::{self, LimitCeilings, LimitRequest, Limits, ProfileTimes};
use cofferdam_core::privileged::MakeFailure as _;
use cofferdam_test_support::golden::assert_committed;

use super::hostcalls::attempt_log::{AttemptLog, Termination};
use super::memory::GrowthRefusal;
use super::memory::MemoryAccount;
use super::outcome::{from_call_ending, from_termination};
use super::traps::TRAPS;
use super::traps::{CallEnding, classify};

#[test]
fn the_limits_reference_is_up_to_date() {
    let page = include_str!("reference.md")
        .replace("{limits}", &limits_table())
        .replace("{traps}", &traps_table())
        .replace("{markers}", &markers_table());
    assert_committed("docs/reference/limits.md", &page);
}

/// Returns the row of a limit: the source of its amount, and the mechanism that stops a guest that wants
/// more.
fn row(kind: LimitKind) -> (String, String, &'static str) {
    let none = LimitRequest::default();
    let ceilings = LimitCeilings::default();
    let Ok(default) = Limits::resolve(&ceilings, &none, &none, &none, &ProfileTimes::default()) else {
        return Default::default();
    };
    const HTTP: &str = "the http gate, as bytes flow";
    let fixed = |amount: usize, by| (shown(amount as u64, kind.unit()), "fixed".to_owned(), by);
    match kind {
        LimitKind::Fuel => (
            "1,000,000,000 for each second of wall time".into(),
            count(ceilings.fuel()),
            "wasmtime, each instruction",
        ),
        LimitKind::WallTime => (
            shown(default.wall_time().as_millis() as u64, "ms"),
            shown(ceilings.wall_time().as_millis() as u64, "ms"),
            "a deadline, checked whenever the guest yields, which it must; a timer while it waits",
        ),
        LimitKind::Memory => (
            shown(default.memory(), "bytes"),
            shown(ceilings.memory(), "bytes"),
            "the attempt's account: memories, tables (8 bytes an element) and data that the host holds for the guest",
        ),
        LimitKind::Stack => fixed(limits::STACK_BYTES, "wasmtime, at every function's entry"),
        LimitKind::Tables => fixed(limits::TABLES, "counted before anything is instantiated"),
        LimitKind::Memories => fixed(limits::MEMORIES, "counted before anything is instantiated"),
        LimitKind::Instances => fixed(limits::INSTANCES, "counted before anything is instantiated"),
        LimitKind::Handles => fixed(limits::HANDLES, "wasmtime's handle tables; lent handles count"),
        LimitKind::HostTransfer => {
            fixed(limits::HOST_TRANSFER_BYTES, "wasmtime, before it copies; random bytes: 64 KiB in one call")
        }
        LimitKind::Payload => fixed(limits::PAYLOAD_BYTES, "the host, before the sandbox and after it"),
        LimitKind::Requests => fixed(limits::REQUESTS as usize, "the http gate"),
        LimitKind::RequestBody => fixed(limits::REQUEST_BODY_BYTES as usize, HTTP),
        LimitKind::ResponseBody => fixed(limits::RESPONSE_BODY_BYTES as usize, HTTP),
        LimitKind::RequestHeaders => fixed(limits::HEADER_BYTES, "as the guest builds them, and at the gate"),
        LimitKind::ResponseHeaders => fixed(limits::HEADER_BYTES, "the http gate, before they are parsed"),
        LimitKind::ResponseFields => fixed(limits::RESPONSE_FIELDS as usize, "the http gate"),
        LimitKind::Rate => (
            "none".to_owned(),
            "the operator's".to_owned(),
            "the http gate, which delays the request if the call has the time",
        ),
    }
}

fn limits_table() -> String {
    let mut table = String::from(
        "| `details.limit` | counts | default | ceiling | enforced by |\n|---|---|---|---|---|\n",
    );
    for kind in LimitKind::ALL {
        let (default, ceiling, by) = row(*kind);
        let (name, meaning) = (kind.name(), kind.meaning());
        writeln!(table, "| `{name}` | {meaning} | {default} | {ceiling} | {by} |").ok();
    }
    table
}

fn context() -> FailureContext {
    let connector: Arc<str> = "local://manual/manual@1.0.0".into();
    FailureContext::new(AuditId::mint()).with_connector(connector, None).with_op("op", true)
}

fn cells(failure: &Failure) -> String {
    let (class, boundary) = (failure.class().name(), failure.boundary().name());
    let code = match failure.details().get("trap").and_then(|trap| trap.as_str()) {
        Some(trap) => format!("`{}` (`{trap}`)", failure.code()),
        None => format!("`{}`", failure.code()),
    };
    assert!(!failure.retriable(), "the page says so");
    format!("`{class}` | `{boundary}` | {code}")
}

fn ending(error: wasmtime::Error) -> CallEnding {
    let none = LimitRequest::default();
    match Limits::resolve(&LimitCeilings::default(), &none, &none, &none, &ProfileTimes::default()) {
        Ok(limits) => classify(&error, &MemoryAccount::new(limits.memory()), &limits, 1),
        Err(_) => CallEnding::Fault(RuntimeFault::Internal),
    }
}

/// Groups the traps by their ending. A trap with a code of its own has its own name there, in snake case.
fn traps_table() -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for (name, trap) in TRAPS {
        let failure = from_call_ending(&context(), ending((*trap).into()));
        let own: String =
            name.chars().flat_map(|c| if c.is_uppercase() { vec!['_', c] } else { vec![c] }).collect();
        let own = own.trim_start_matches('_').to_lowercase();
        let mut cells = cells(&failure);
        let mut shown = (*name).to_owned();
        if let Some((start, trap)) = cells.clone().split_once(" (`") {
            let trap = trap.trim_end_matches("`)");
            cells = format!("{start} and the trap's name");
            if trap != own {
                shown = format!("{name} (`{trap}`)");
            }
        }
        match groups.iter_mut().find(|group| group.0 == cells) {
            Some(group) => group.1.push(shown),
            None => groups.push((cells, vec![shown])),
        }
    }
    let mut table = String::from("| class | boundary | code | traps |\n|---|---|---|---|\n");
    for (cells, names) in groups {
        writeln!(table, "| {cells} | {} |", names.join(", ")).ok();
    }
    table
}

fn markers_table() -> String {
    let denial = Denial::new(DenialBoundary::Sandbox, DenialCode::HostNotGranted, "", Vec::new());
    let hit = LimitHit::at_least_one_over(LimitKind::Requests, 1);
    let memory = LimitHit::at_least_one_over(LimitKind::Memory, 1);
    let wall = LimitHit::at_least_one_over(LimitKind::WallTime, 1);
    let full = wasmtime::component::ResourceTableError::Full;
    let misuse = wasmtime::component::ResourceTableError::NotPresent;
    let fields = wasmtime_wasi_http::FieldMapError::TotalSizeTooBig;
    let of = |error: wasmtime::Error| from_call_ending(&context(), ending(error));
    let verdict = |verdict| match from_termination(&context(), verdict, &AttemptLog::new(1)) {
        Ok(failure) => failure,
        Err(error) => unreachable!("{error}"),
    };
    let words = |words: &'static str| of(wasmtime::Error::msg(words));
    let rows: [(&str, Failure); 14] = [
        ("a gate refuses what the guest asks for", verdict(Termination::Denied(denial))),
        ("a gate's count is full", verdict(Termination::Limit(hit))),
        ("the deadline passes", Failure::resource_limit_exceeded(&context(), wall)),
        ("the limiter refuses memory, whatever the guest does then", of(GrowthRefusal(memory).into())),
        ("the host's table of resources is full", of(full.into())),
        ("a handle is used that is not there, or not of that type", of(misuse.into())),
        ("the fields of a request grow too large", of(fields.into())),
        ("the guest calls `exit`, with whatever code", of(wasmtime_wasi::I32Exit(0).into())),
        (
            "wasmtime's budget of handles is used up (known by its words)",
            words("cannot lend resource: store handle limit"),
        ),
        (
            "wasmtime's budget of transferred bytes is used up (known by its words)",
            words("too much data is being copied"),
        ),
        ("the canonical ABI refuses a value (known by its words)", words("list pointer is not aligned")),
        ("a host function refuses how it is used (known by its words)", words("empty poll list")),
        ("anything else that wasmtime or the machine reports", words("mmap failed")),
        (
            "a gate panics: the attempt ends, the process goes on",
            Failure::connector_runtime_error(&context(), RuntimeFault::Internal),
        ),
    ];
    let mut table = String::from("| ending | class | boundary | code |\n|---|---|---|---|\n");
    for (what, failure) in &rows {
        writeln!(table, "| {what} | {} |", cells(failure)).ok();
    }
    table
}

/// Returns an amount in its unit, as people read it.
fn shown(amount: u64, unit: &str) -> String {
    match unit {
        "bytes" if amount.is_multiple_of(1 << 30) => format!("{} GiB", amount >> 30),
        "bytes" if amount.is_multiple_of(1 << 20) => format!("{} MiB", amount >> 20),
        "bytes" => format!("{} KiB", amount >> 10),
        "ms" if amount.is_multiple_of(60_000) => format!("{} min", amount / 60_000),
        "ms" => format!("{} s", amount / 1_000),
        _ => count(amount),
    }
}

/// A number with a comma after each three digits.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
