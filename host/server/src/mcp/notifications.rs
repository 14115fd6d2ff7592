//! Notifications for a client while its call runs: progress if it requested that, and log lines from its
//! level up.
#![expect(
    deprecated,
    reason = "logging is to leave the protocol, and clients of its present versions use it"
)]

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::event::{Event, EventKind, Listener, is_action, shown_wait};
use rmcp::RoleServer;
use rmcp::model::{
    LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam, ProgressNotification,
    ProgressNotificationParam, ProgressToken, ServerNotification,
};
use rmcp::service::Peer;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::progress::{ProgressEvent, ProgressTracker, ProgressUpdate};

/// The most notifications that wait for a client that reads slowly; later ones are dropped.
const QUEUE_LENGTH: usize = 32;

/// The longest time that an answer waits for the notifications before it.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The receiver of the notifications of the call that runs in this task.
    static SINK: mpsc::Sender<CallNotification>;
}

/// A notification: a step of the call, as text and as data.
struct CallNotification {
    level: LoggingLevel,
    audit_id: String,
    step: &'static str,
    says: ProgressEvent,
}

/// The listener of a host whose calls are made for agents: give it to
/// [`HostBuilder::listener`](cofferdam_runtime::host::HostBuilder).
#[derive(Debug, Clone, Copy, Default)]
pub struct CallNotes;

impl CallNotes {
    /// The listener.
    #[must_use]
    pub fn listener() -> Arc<dyn Listener> {
        Arc::new(Self)
    }
}

impl Listener for CallNotes {
    fn event(&self, event: &Event<'_>) {
        // Calls without a subscriber have no sink; a full sink only loses the notification.
        let _nobody = SINK.try_with(|sink| {
            let Some((level, says)) = describe_step(&event.kind) else { return };
            let (audit_id, step) = (event.audit_id.as_str().to_owned(), event.kind.name());
            drop(sink.try_send(CallNotification { level, audit_id, step, says }));
        });
    }
}

/// Describes the step; returns none for a step without interest for an agent. A connector's own texts are
/// never included.
fn describe_step(step: &EventKind<'_>) -> Option<(LoggingLevel, ProgressEvent)> {
    let (level, text) = match step {
        EventKind::Received { connector, .. } if is_action(connector) => {
            return Some((LoggingLevel::Debug, ProgressEvent::Action));
        }
        EventKind::StepStarted { step, call, connector, op, number, of } => {
            let (call, name) = (call.as_str().to_owned(), (*step).to_owned());
            let what = format!("{op} of {connector}.");
            let (number, of) = (*number, *of);
            return Some((LoggingLevel::Info, ProgressEvent::Begins { number, of, call, name, what }));
        }
        EventKind::Final { outcome, class, code, .. } => {
            let how = match *outcome {
                "value" => "succeeded",
                "failure" => "failed",
                "cancelled" => "was cancelled",
                _ => "was refused",
            };
            let why = match *outcome {
                "failure" => *class,
                "refused" => *code,
                _ => None,
            };
            let why = why.map(str::to_owned);
            return Some((LoggingLevel::Info, ProgressEvent::Ended(how, why)));
        }
        EventKind::Admitted { connector, .. } => {
            (LoggingLevel::Debug, format!("{connector} passed every check."))
        }
        EventKind::AttemptStarted { connector, op, attempt, .. } => {
            (LoggingLevel::Debug, format!("Attempt {attempt}: {op} of {connector}."))
        }
        EventKind::RetryScheduled { failure, retry, of, delay, .. } => {
            (LoggingLevel::Warning, format!("{failure} Retry {retry}/{of} in {}.", shown_wait(*delay)))
        }
        EventKind::FallbackTriggered { from, to, failure } => {
            (LoggingLevel::Warning, format!("{failure} {to} is asked instead of {from}."))
        }
        EventKind::RateDelayed { host, delay } => {
            (LoggingLevel::Info, format!("A request to {host} has its turn in {}.", shown_wait(*delay)))
        }
        _ => return None,
    };
    Some((level, ProgressEvent::Within(text)))
}

/// The notifications of one call on their way to its client.
pub(super) struct NotificationSender {
    sink: Option<mpsc::Sender<CallNotification>>,
    telling: Option<JoinHandle<()>>,
}

impl NotificationSender {
    /// Sends the notifications of a call to `peer`: those of the level and above, and each as progress if it
    /// gave a token. A call that `may_wait` for a person goes on after that.
    pub(super) fn start(
        peer: &Peer<RoleServer>,
        progress: Option<ProgressToken>,
        level: Option<LoggingLevel>,
        may_wait: bool,
    ) -> Self {
        if progress.is_none() && level.is_none() {
            return Self { sink: None, telling: None };
        }
        let (sink, notes) = mpsc::channel(QUEUE_LENGTH);
        let tracker = ProgressTracker::new(may_wait);
        let telling = tokio::spawn(send_notifications(peer.clone(), notes, tracker, progress, level));
        Self { sink: Some(sink), telling: Some(telling) }
    }

    /// Runs `call` to its end, turns its steps into notifications, and waits until those are sent.
    pub(super) async fn run<T>(self, call: impl Future<Output = T>) -> T {
        let (Some(sink), Some(mut telling)) = (self.sink, self.telling) else { return call.await };
        let outcome = SINK.scope(sink, call).await;
        // Nothing may follow the answer; a client that does not read must not delay it.
        if tokio::time::timeout(SEND_TIMEOUT, &mut telling).await.is_err() {
            telling.abort();
        }
        outcome
    }
}

async fn send_notifications(
    peer: Peer<RoleServer>,
    mut notes: mpsc::Receiver<CallNotification>,
    mut tracker: ProgressTracker,
    progress: Option<ProgressToken>,
    from: Option<LoggingLevel>,
) {
    while let Some(CallNotification { level, audit_id, step, says }) = notes.recv().await {
        let Some(ProgressUpdate { text, at, of }) = tracker.update(&audit_id, says) else { continue };
        if from.is_some_and(|from| rank(level) >= rank(from)) {
            let facts = json!({"audit_id": audit_id, "step": step, "message": text});
            let note = LoggingMessageNotificationParam::new(level, facts).with_logger("cofferdam");
            let note = LoggingMessageNotification::new(note);
            if peer.send_notification(ServerNotification::LoggingMessageNotification(note)).await.is_err() {
                return;
            }
        }
        if let Some(token) = &progress {
            let mut note = ProgressNotificationParam::new(token.clone(), at).with_message(text);
            note.total = of;
            let note = ProgressNotification::new(note);
            if peer.send_notification(ServerNotification::ProgressNotification(note)).await.is_err() {
                return;
            }
        }
    }
}

const fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use cofferdam_core::event::EventKind;

    use super::{ProgressEvent, describe_step};

    #[test]
    fn an_end_names_its_class_or_code() {
        for (outcome, class, code, how, why) in [
            ("failure", Some("network_error"), Some("timeout"), "failed", Some("network_error")),
            ("refused", None, Some("busy"), "was refused", Some("busy")),
            ("cancelled", None, Some("cancelled"), "was cancelled", None),
            ("value", None, None, "succeeded", None),
        ] {
            let (_, says) = describe_step(&EventKind::Final { outcome, class, code, prompt: None }).unwrap();
            assert_eq!(says, ProgressEvent::Ended(how, why.map(str::to_owned)), "{outcome}");
        }
    }
}
