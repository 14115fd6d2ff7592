//! `cofferdam:connector/log`: a guest's own log lines, bounded and sanitized, into the operator's log and the
//! audit log.

use std::borrow::Cow;

use cofferdam_core::event::EventSource;
use cofferdam_core::event::recorded::RecordedLogLine;
use cofferdam_core::failure::{AuditId, sanitize_line};
use cofferdam_core::limits;
use cofferdam_core::secret::{Scanner, redact_likely_secrets};
use jiff::Timestamp;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, LinkerInstance, WasmList, WasmStr};

use crate::store_data::StoreData;

#[derive(ComponentType, Lift, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by lifting what the guest passes")]
enum GuestLogLevel {
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
struct LogField {
    key: WasmStr,
    value: WasmStr,
}

/// Fields of one line, and characters of a field's key.
const MAX_FIELDS: usize = 32;
const KEY_CHARS: usize = 64;

/// The most text of an attempt's lines in the audit log, in bytes.
const RECORDED_BYTES: usize = 64 * 1024;

/// The cost of a line that is kept for the audit log in addition to its text: its time, and its place in a growing
/// list.
const RECORDED_LINE_BYTES: u64 = 256;

/// The suppressed errors of a guest that the audit log keeps for one attempt.
const MAX_SUPPRESSED: usize = 100;

/// The counts of an attempt's log lines, and its suppressed errors. When dropped, it logs the number of
/// omitted lines.
#[derive(Debug)]
pub(crate) struct GuestLog {
    call: AuditId,
    lines: usize,
    recorded: RecordedLog,
    /// The bytes of the recorded lines' texts.
    recorded_bytes: usize,
    suppressed: Vec<SuppressedError>,
}

/// The lines of an attempt for the audit log: the first ones, up to a size.
#[derive(Debug, Default)]
pub struct RecordedLog {
    /// The lines in order.
    pub lines: Vec<RecordedLogLine<'static>>,
    /// The number of later lines.
    pub omitted: u64,
}

impl RecordedLog {
    fn omit(&mut self) {
        self.omitted = self.omitted.saturating_add(1);
    }
}

impl Drop for GuestLog {
    fn drop(&mut self) {
        let (kept, omitted) = self.kept_and_dropped();
        if omitted > 0 {
            let call = self.call.as_str();
            tracing::warn!(target: "cofferdam::guest", call, "the connector wrote more than {kept} lines; {omitted} were omitted");
        }
    }
}

/// An error that the guest reported as harmless, or that the host saw in an attempt that returned a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuppressedError {
    /// The time.
    pub at: Timestamp,
    /// The reporter.
    pub by: EventSource,
    /// The reason why it does not matter.
    pub reason: String,
    /// The error's text.
    pub cause: String,
}

impl GuestLog {
    pub(crate) fn new(call: AuditId) -> Self {
        let recorded = RecordedLog::default();
        Self { call, lines: 0, recorded, recorded_bytes: 0, suppressed: Vec::new() }
    }

    /// Lines that were written, and lines that were dropped.
    pub(crate) fn kept_and_dropped(&self) -> (u64, u64) {
        let kept = self.lines.min(limits::LOG_LINES);
        (kept as u64, self.lines.saturating_sub(kept) as u64)
    }

    /// Returns the suppressed errors, in order.
    pub(crate) fn take_suppressed(&mut self) -> Vec<SuppressedError> {
        std::mem::take(&mut self.suppressed)
    }

    /// Returns the lines for the audit log.
    pub(crate) fn take_recorded(&mut self) -> RecordedLog {
        std::mem::take(&mut self.recorded)
    }

    /// Counts one more line and returns whether it is still to be written.
    fn takes_another(&mut self) -> bool {
        self.lines = self.lines.saturating_add(1);
        self.lines <= limits::LOG_LINES
    }
}

/// Reads the error that the guest suppresses from the guest's memory. It is truncated there, the reason
/// before the cause.
fn read_suppressed(
    store: &mut StoreContextMut<'_, StoreData>,
    reason: &WasmStr,
    cause: &WasmStr,
) -> wasmtime::Result<SuppressedError> {
    let scanner = store.data().scanner();
    let cut = |text: &str, chars| clean_prefix(text, chars, scanner.as_deref());
    let reason = cut(&reason.to_str(&*store)?, limits::LOG_LINE_CHARS);
    let cause = cut(&cause.to_str(&*store)?, limits::LOG_LINE_CHARS.saturating_sub(reason.len()));
    Ok(SuppressedError { at: store.data().clock.timestamp(), by: EventSource::Connector, reason, cause })
}

/// Reads the line from the guest's memory. It is truncated there, so that only the kept part is copied.
fn line(
    store: &mut StoreContextMut<'_, StoreData>,
    message: &WasmStr,
    fields: &WasmList<LogField>,
) -> wasmtime::Result<String> {
    let scanner = store.data().scanner();
    let cut = |text: &str, chars| clean_prefix(text, chars, scanner.as_deref());
    let mut line = cut(&message.to_str(&*store)?, limits::LOG_LINE_CHARS);
    for index in 0..fields.len().min(MAX_FIELDS) {
        let room = limits::LOG_LINE_CHARS.saturating_sub(line.len());
        let Some(LogField { key, value }) = fields.get(&mut *store, index).transpose()? else { break };
        let key = cut(&key.to_str(&*store)?, KEY_CHARS.min(room));
        line.push_str(&format!(" {key}={}", cut(&value.to_str(&*store)?, room)));
    }
    Ok(line)
}

/// Returns the first `chars` characters, sanitized and without secrets; text far behind them is not read.
pub(super) fn clean_prefix(text: &str, chars: usize, scanner: Option<&Scanner>) -> String {
    let end = text.floor_char_boundary(chars.saturating_add(1).saturating_mul(4));
    let near = text.get(..end).unwrap_or_default();
    let is_cut = end < text.len();
    // Sanitized first: vanishing characters could split a secret. Truncated last: truncation could split one.
    let clean = sanitize_line(near, usize::MAX);
    let clean = scanner.map_or(Cow::from(&clean), |scanner| scanner.redact(&clean, is_cut));
    sanitize_line(&redact_likely_secrets(&clean, is_cut), chars)
}

/// Keeps a line for the audit log if there is space for it. A shorter line after an omitted one is omitted too, so
/// that no reader takes the gap for silence.
fn record(data: &mut StoreData, level: GuestLogLevel, text: String) -> wasmtime::Result<()> {
    let bytes = data.log.recorded_bytes.saturating_add(text.len());
    if data.log.recorded.omitted > 0 || bytes > RECORDED_BYTES {
        data.log.recorded.omit();
        return Ok(());
    }
    data.log.recorded_bytes = bytes;
    // Never released: it is kept to the end of the attempt.
    data.ledger().hold(RECORDED_LINE_BYTES.saturating_add(text.capacity() as u64))?;
    let at = format!("{:.6}", data.clock.timestamp());
    data.log.recorded.lines.push(RecordedLogLine { at, level: level.name().into(), text });
    Ok(())
}

impl GuestLogLevel {
    fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

fn write(call: &str, level: GuestLogLevel, line: &str) {
    match level {
        GuestLogLevel::Trace => tracing::trace!(target: "cofferdam::guest", call, "{line}"),
        GuestLogLevel::Debug => tracing::debug!(target: "cofferdam::guest", call, "{line}"),
        GuestLogLevel::Info => tracing::info!(target: "cofferdam::guest", call, "{line}"),
        GuestLogLevel::Warn => tracing::warn!(target: "cofferdam::guest", call, "{line}"),
        GuestLogLevel::Error => tracing::error!(target: "cofferdam::guest", call, "{line}"),
    }
}

/// Defines the interface's functions.
pub(crate) fn link(instance: &mut LinkerInstance<'_, StoreData>) -> wasmtime::Result<()> {
    instance.func_wrap("log", |mut store, args: (GuestLogLevel, WasmStr, WasmList<LogField>)| {
        let (level, message, fields) = args;
        store.data().names_host_call("log.log");
        if store.data_mut().log.takes_another() {
            let line = line(&mut store, &message, &fields)?;
            write(store.data().audit_id.as_str(), level, &line);
            return record(store.data_mut(), level, line);
        }
        store.data_mut().log.recorded.omit();
        Ok(())
    })?;
    instance.func_wrap("suppressed", |mut store, args: (WasmStr, WasmStr)| {
        let (reason, cause) = args;
        store.data().names_host_call("log.suppressed");
        let log = &mut store.data_mut().log;
        if log.takes_another() && log.suppressed.len() < MAX_SUPPRESSED {
            let suppressed = read_suppressed(&mut store, &reason, &cause)?;
            // Never released: it is kept to the end of the attempt.
            store.data().ledger().hold((suppressed.reason.len() + suppressed.cause.len()) as u64)?;
            store.data_mut().log.suppressed.push(suppressed);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_likely_secret_is_redacted_before_it_is_cut_off() {
        let key = format!("key sk-{}", "a1B2".repeat(10));
        for chars in [8, 20, 200] {
            let clean = clean_prefix(&key, chars, None);
            assert!(!clean.contains("sk-"), "{chars}: {clean}");
        }
        assert_eq!(clean_prefix("a plain line", 7, None), sanitize_line("a plain line", 7));
    }
}
