//! `cofferdam:connector/log`: a guest's own log lines, bounded and made safe, into the operator's log.

use cofferdam_core::event::Speaker;
use cofferdam_core::failure::{AuditId, safe_line};
use cofferdam_core::limits;
use cofferdam_core::secret::Scanner;
use jiff::Timestamp;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, LinkerInstance, WasmList, WasmStr};

use crate::state::State;

#[derive(ComponentType, Lift, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by lifting what the guest passes")]
enum Level {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

#[derive(ComponentType, Lift)]
#[component(record)]
struct Field {
    key: WasmStr,
    value: WasmStr,
}

/// Fields of one line, and characters of a field's key.
const FIELDS: usize = 32;
const KEY_CHARS: usize = 64;

/// Errors passed over that one attempt's record keeps of its guest.
const SUPPRESSED: usize = 100;

/// How many lines one attempt has written, and what it has passed over. Dropped, it says how many were omitted.
#[derive(Debug)]
pub(crate) struct LogLane {
    call: AuditId,
    lines: usize,
    suppressed: Vec<Suppressed>,
}

impl Drop for LogLane {
    fn drop(&mut self) {
        let (kept, omitted) = self.kept_and_dropped();
        if omitted > 0 {
            let call = self.call.as_str();
            tracing::warn!(target: "cofferdam::guest", call, "the connector wrote more than {kept} lines; {omitted} were omitted");
        }
    }
}

/// An error that was passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppressed {
    /// When.
    pub at: Timestamp,
    /// Who says so.
    pub by: Speaker,
    /// Why it does not matter.
    pub reason: String,
    /// What it was.
    pub cause: String,
}

impl LogLane {
    pub(crate) fn new(call: AuditId) -> Self {
        Self { call, lines: 0, suppressed: Vec::new() }
    }

    /// Lines that were written, and lines that were dropped.
    pub(crate) fn kept_and_dropped(&self) -> (u64, u64) {
        let kept = self.lines.min(limits::LOG_LINES);
        (kept as u64, self.lines.saturating_sub(kept) as u64)
    }

    /// What was passed over, in order.
    pub(crate) fn take_suppressed(&mut self) -> Vec<Suppressed> {
        std::mem::take(&mut self.suppressed)
    }

    /// Counts one more line; whether it is still to be written.
    fn takes_another(&mut self) -> bool {
        self.lines = self.lines.saturating_add(1);
        self.lines <= limits::LOG_LINES
    }
}

/// The error that the guest passes over, from what still lies in its memory: cut there, reason before cause.
fn passed_over(
    store: &mut StoreContextMut<'_, State>,
    reason: &WasmStr,
    cause: &WasmStr,
) -> wasmtime::Result<Suppressed> {
    let scanner = store.data().scanner();
    let cut = |text: &str, chars| cut(text, chars, scanner.as_deref());
    let reason = cut(&reason.to_str(&*store)?, limits::LOG_LINE_CHARS);
    let cause = cut(&cause.to_str(&*store)?, limits::LOG_LINE_CHARS.saturating_sub(reason.len()));
    Ok(Suppressed { at: store.data().clock.timestamp(), by: Speaker::Connector, reason, cause })
}

/// The line, from what still lies in the guest's memory: cut there, so that only what is kept is copied.
fn line(
    store: &mut StoreContextMut<'_, State>,
    message: &WasmStr,
    fields: &WasmList<Field>,
) -> wasmtime::Result<String> {
    let scanner = store.data().scanner();
    let cut = |text: &str, chars| cut(text, chars, scanner.as_deref());
    let mut line = cut(&message.to_str(&*store)?, limits::LOG_LINE_CHARS);
    for index in 0..fields.len().min(FIELDS) {
        let room = limits::LOG_LINE_CHARS.saturating_sub(line.len());
        let Some(Field { key, value }) = fields.get(&mut *store, index).transpose()? else { break };
        let key = cut(&key.to_str(&*store)?, KEY_CHARS.min(room));
        line.push_str(&format!(" {key}={}", cut(&value.to_str(&*store)?, room)));
    }
    Ok(line)
}

/// The first `chars` characters, made safe and without secrets; what lies far behind them is not looked at.
fn cut(text: &str, chars: usize, scanner: Option<&Scanner>) -> String {
    let end = text.floor_char_boundary(chars.saturating_add(1).saturating_mul(4));
    let near = text.get(..end).unwrap_or_default();
    match scanner {
        None => safe_line(near, chars),
        // Made safe first: characters that vanish could part a secret. Cut last: it could cut one.
        Some(scanner) => safe_line(&scanner.redact(&safe_line(near, usize::MAX), end < text.len()), chars),
    }
}

fn write(call: &str, level: Level, line: &str) {
    match level {
        Level::Trace => tracing::trace!(target: "cofferdam::guest", call, "{line}"),
        Level::Debug => tracing::debug!(target: "cofferdam::guest", call, "{line}"),
        Level::Info => tracing::info!(target: "cofferdam::guest", call, "{line}"),
        Level::Warn => tracing::warn!(target: "cofferdam::guest", call, "{line}"),
        Level::Error => tracing::error!(target: "cofferdam::guest", call, "{line}"),
    }
}

/// Defines the interface's functions.
pub(crate) fn link(instance: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    instance.func_wrap("log", |mut store, args: (Level, WasmStr, WasmList<Field>)| {
        let (level, message, fields) = args;
        if store.data_mut().log.takes_another() {
            let line = line(&mut store, &message, &fields)?;
            write(store.data().audit_id.as_str(), level, &line);
        }
        Ok(())
    })?;
    instance.func_wrap("suppressed", |mut store, args: (WasmStr, WasmStr)| {
        let (reason, cause) = args;
        let log = &mut store.data_mut().log;
        if log.takes_another() && log.suppressed.len() < SUPPRESSED {
            let suppressed = passed_over(&mut store, &reason, &cause)?;
            // For good: it is kept to the end.
            store.data().ledger().hold((suppressed.reason.len() + suppressed.cause.len()) as u64)?;
            store.data_mut().log.suppressed.push(suppressed);
        }
        Ok(())
    })
}
