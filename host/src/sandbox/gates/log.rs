//! `cofferdam:connector/log`: a guest's own log lines, bounded and made safe, into the operator's log.

use wasmtime::component::{ComponentType, Lift, LinkerInstance};

use crate::failure::safe_line;
use crate::limits;
use crate::sandbox::state::State;

#[derive(ComponentType, Lift, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
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
    key: String,
    value: String,
}

/// How many lines one attempt has written.
#[derive(Debug, Default)]
pub(in crate::sandbox) struct LogLane {
    lines: usize,
}

impl LogLane {
    fn write(&mut self, call: &str, level: Level, message: &str, fields: &[Field]) {
        self.lines = self.lines.saturating_add(1);
        if self.lines > limits::LOG_LINES {
            if self.lines == limits::LOG_LINES + 1 {
                tracing::warn!(target: "cofferdam::guest", call, "the connector wrote more than {} lines; the rest is dropped", limits::LOG_LINES);
            }
            return;
        }
        let mut line = safe_line(message, limits::LOG_LINE_CHARS);
        for Field { key, value } in fields.iter().take(32) {
            let room = limits::LOG_LINE_CHARS.saturating_sub(line.len());
            line.push_str(&format!(" {}={}", safe_line(key, 64.min(room)), safe_line(value, room)));
        }
        match level {
            Level::Trace => tracing::trace!(target: "cofferdam::guest", call, "{line}"),
            Level::Debug => tracing::debug!(target: "cofferdam::guest", call, "{line}"),
            Level::Info => tracing::info!(target: "cofferdam::guest", call, "{line}"),
            Level::Warn => tracing::warn!(target: "cofferdam::guest", call, "{line}"),
            Level::Error => tracing::error!(target: "cofferdam::guest", call, "{line}"),
        }
    }
}

/// Defines the interface's function.
pub(in crate::sandbox) fn link(instance: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    instance.func_wrap("log", |mut store, (level, message, fields): (Level, String, Vec<Field>)| {
        let state = store.data_mut();
        state.log.write(state.audit_id.as_str(), level, &message, &fields);
        Ok(())
    })
}
