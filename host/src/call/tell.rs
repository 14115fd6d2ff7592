//! Who hears of a step as it happens: the log and the listener, neither of which can fail the call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::Level;

use crate::event::{Event, Listener, Step, shown_wait};
use crate::failure::AuditId;

/// Tells the log and the listener; neither can fail the call.
pub(super) fn tell(audit_id: &AuditId, seq: u32, listener: Option<&dyn Listener>, step: Step<'_>) {
    if tracing::enabled!(target: "cofferdam::event", Level::INFO) {
        let facts = || serde_json::Value::Object(step.facts()).to_string();
        match step {
            Step::RetryScheduled { failure, retry, of, delay, .. } => {
                let wait = shown_wait(delay);
                tracing::info!(target: "cofferdam::event", audit_id = audit_id.as_str(), seq, step = step.name(), facts = facts(), "{failure} Retry {retry}/{of} in {wait}");
            }
            Step::FallbackTriggered { .. } | Step::CircuitChanged { .. } | Step::Suppressed { .. } => {
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
