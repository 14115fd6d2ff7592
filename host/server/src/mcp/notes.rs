//! What a client is told while its call runs: progress where it asked for that, and log lines from its level up.
#![expect(
    deprecated,
    reason = "logging is to leave the protocol, and clients of its present versions use it"
)]

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::event::{Event, Listener, Step, is_action, shown_wait};
use rmcp::RoleServer;
use rmcp::model::{
    LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam, ProgressNotification,
    ProgressNotificationParam, ProgressToken, ServerNotification,
};
use rmcp::service::Peer;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::course::{Course, Says, Told};

/// Notes that wait for a client that reads slowly; what comes after them is not told.
const WAITING: usize = 32;

/// How long an answer waits for the notes before it.
const PATIENCE: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Where the notes of the call go that runs in this task.
    static SINK: mpsc::Sender<Note>;
}

/// A note: a step of the call, in words and as facts.
struct Note {
    level: LoggingLevel,
    audit_id: String,
    step: &'static str,
    says: Says,
}

/// The listener of a host whose calls are made for agents: give it to [`HostBuilder::listener`](cofferdam_runtime::host::HostBuilder).
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
        // Calls that nobody wants to hear of have no sink; a full one loses the note and nothing else.
        let _nobody = SINK.try_with(|sink| {
            let Some((level, says)) = said(&event.step) else { return };
            let (audit_id, step) = (event.audit_id.as_str().to_owned(), event.step.name());
            drop(sink.try_send(Note { level, audit_id, step, says }));
        });
    }
}

/// The step in words; none for what tells an agent nothing. What a connector says of itself is never among it.
fn said(step: &Step<'_>) -> Option<(LoggingLevel, Says)> {
    let (level, text) = match step {
        Step::Received { connector, .. } if is_action(connector) => {
            return Some((LoggingLevel::Debug, Says::Action));
        }
        Step::StepStarted { step, call, connector, op, number, of } => {
            let (call, name) = (call.as_str().to_owned(), (*step).to_owned());
            let what = format!("{op} of {connector}.");
            let (number, of) = (*number, *of);
            return Some((LoggingLevel::Info, Says::Begins { number, of, call, name, what }));
        }
        Step::Final { outcome, class, .. } => {
            let how = match *outcome {
                "value" => "succeeded",
                "failure" => "failed",
                "cancelled" => "was cancelled",
                _ => "was refused",
            };
            let why = class.filter(|_| matches!(*outcome, "failure" | "refused")).map(str::to_owned);
            return Some((LoggingLevel::Info, Says::Ended(how, why)));
        }
        Step::Admitted { connector, .. } => (LoggingLevel::Debug, format!("{connector} passed every check.")),
        Step::AttemptStarted { connector, op, attempt, .. } => {
            (LoggingLevel::Debug, format!("Attempt {attempt}: {op} of {connector}."))
        }
        Step::RetryScheduled { failure, retry, of, delay, .. } => {
            (LoggingLevel::Warning, format!("{failure} Retry {retry}/{of} in {}.", shown_wait(*delay)))
        }
        Step::FallbackTriggered { from, to, failure } => {
            (LoggingLevel::Warning, format!("{failure} {to} is asked instead of {from}."))
        }
        Step::RateDelayed { host, delay } => {
            (LoggingLevel::Info, format!("A request to {host} has its turn in {}.", shown_wait(*delay)))
        }
        _ => return None,
    };
    Some((level, Says::Within(text)))
}

/// The notes of one call on their way to its client.
pub(super) struct Notes {
    sink: Option<mpsc::Sender<Note>>,
    telling: Option<JoinHandle<()>>,
}

impl Notes {
    /// Tells `peer` the notes of a call: those of the level and above it, and each as progress where it gave a token.
    pub(super) fn to(
        peer: &Peer<RoleServer>,
        progress: Option<ProgressToken>,
        level: Option<LoggingLevel>,
    ) -> Self {
        if progress.is_none() && level.is_none() {
            return Self { sink: None, telling: None };
        }
        let (sink, notes) = mpsc::channel(WAITING);
        let telling = tokio::spawn(tell(peer.clone(), notes, progress, level));
        Self { sink: Some(sink), telling: Some(telling) }
    }

    /// Runs `call`, whose steps become notes, to its end and until they are told.
    pub(super) async fn of<T>(self, call: impl Future<Output = T>) -> T {
        let (Some(sink), Some(mut telling)) = (self.sink, self.telling) else { return call.await };
        let outcome = SINK.scope(sink, call).await;
        // Nothing may follow the answer; a client that reads nothing does not hold it up.
        if tokio::time::timeout(PATIENCE, &mut telling).await.is_err() {
            telling.abort();
        }
        outcome
    }
}

async fn tell(
    peer: Peer<RoleServer>,
    mut notes: mpsc::Receiver<Note>,
    progress: Option<ProgressToken>,
    from: Option<LoggingLevel>,
) {
    let mut course = Course::default();
    while let Some(Note { level, audit_id, step, says }) = notes.recv().await {
        let Some(Told { text, at, of }) = course.tells(&audit_id, says) else { continue };
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
