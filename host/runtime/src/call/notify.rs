//! Notifies the log and the listener of the events of a call. Neither can fail the call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cofferdam_core::event::{Event, EventKind, Listener, shown_wait};
use cofferdam_core::failure::AuditId;
use tracing::Level;

/// Notifies the log and the listener of an event.
pub(super) fn event(audit_id: &AuditId, seq: u32, listener: Option<&dyn Listener>, step: EventKind<'_>) {
    if tracing::enabled!(target: "cofferdam::event", Level::INFO) {
        let facts = || serde_json::Value::Object(step.payload()).to_string();
        match step {
            EventKind::RetryScheduled { failure, retry, of, delay, .. } => {
                let wait = shown_wait(delay);
                tracing::info!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, step = step.name(), facts = facts(), "{failure} Retry {retry}/{of} in {wait}");
            }
            EventKind::FallbackTriggered { .. }
            | EventKind::CircuitChanged { .. }
            | EventKind::Suppressed { .. } => {
                tracing::info!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, step = step.name(), facts = facts(), "step");
            }
            _ if tracing::enabled!(target: "cofferdam::event", Level::DEBUG) => {
                tracing::debug!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, step = step.name(), facts = facts(), "step");
            }
            _ => {}
        }
    }
    if let Some(listener) = listener
        && catch_unwind(AssertUnwindSafe(|| listener.event(&Event::new(audit_id, seq, step)))).is_err()
    {
        tracing::warn!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, "a listener panicked");
    }
}
