//! The call on record: its events gathered, and written before what they announce happens.
//!
//! Two commits a call: what was admitted, before its guest runs; and how it ended, before anybody hears of it. What
//! lies between goes with the next one. A record that cannot be written is tried again three times, after 2, 4 and 6
//! seconds; then nothing runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::audit::{
    AuditError, AuditLog, CallStatus, CloseCall, Entry, EventLine, KeyEnd, OpenCall, Opened, Order, Route,
    Verdict, Written, written,
};
use crate::clock::Clock;
use crate::error::{HostError, HostErrorKind};
use crate::failpoint;
use crate::failure::AuditId;

/// How long is waited before a write is tried again: each once, in turn.
const WAITS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(6)];

/// A call's place in the record.
pub(super) struct OnRecord {
    log: Arc<dyn AuditLog>,
    clock: Arc<dyn Clock>,
    audit_id: AuditId,
    at: Timestamp,
    since: Instant,
    route: Route,
    actor: Arc<str>,
    idempotent: bool,
    lines: Vec<EventLine>,
    /// Whether its beginning is written.
    opened: bool,
}

impl OnRecord {
    pub(super) fn new(
        log: Arc<dyn AuditLog>,
        clock: Arc<dyn Clock>,
        audit_id: AuditId,
        route: Route,
        actor: Arc<str>,
    ) -> Self {
        let (at, since) = (clock.timestamp(), clock.now());
        let lines = Vec::with_capacity(4);
        Self { log, clock, audit_id, at, since, route, actor, idempotent: false, lines, opened: false }
    }

    /// Says whether the call may be repeated, as soon as that is known.
    pub(super) fn idempotent(&mut self, idempotent: bool) {
        self.idempotent = idempotent;
    }

    /// One more event; written with what comes next.
    pub(super) fn event(&mut self, seq: u32, name: &'static str, payload: Map<String, Value>) {
        self.lines.push(EventLine { at: self.clock.timestamp(), seq, name, payload });
    }

    /// Writes all events so far, and comes back when they are durable.
    ///
    /// # Errors
    /// `audit_unavailable`: they are not.
    pub(super) async fn durable(&mut self) -> Result<Opened, HostError> {
        if failpoint::skips("skip.open") {
            return Ok(Opened::Begun);
        }
        let entry = self.entry();
        if self.opened {
            self.tried(|| {
                let (reply, answer) = written();
                let (audit_id, entry) = (self.audit_id.clone(), entry.clone());
                (Order::Append { audit_id, entry, reply: Some(reply) }, answer)
            })
            .await
            .map_err(unavailable)?;
            failpoint::pass("append.durable");
            return Ok(Opened::Begun);
        }
        let open = self.open(entry);
        let opened = self.tried(|| {
            let (reply, answer) = written();
            (Order::Open { call: Box::new(open.clone()), reply }, answer)
        });
        let opened = opened.await.map_err(unavailable)?;
        failpoint::pass("open.durable");
        self.opened = true;
        Ok(opened)
    }

    /// Has all events so far written, soon.
    pub(super) fn soon(&mut self) {
        if self.opened && !self.lines.is_empty() {
            let (audit_id, entry) = (self.audit_id.clone(), self.entry());
            self.log.submit(Order::Append { audit_id, entry, reply: None });
        }
    }

    /// Writes the end, and comes back when it is durable.
    ///
    /// # Errors
    /// `audit_unavailable` where nothing was run, `outcome_unknown` where something was: it is not.
    pub(super) async fn close(&mut self, attempts: u32, verdict: Verdict) -> Result<(), HostError> {
        let (open, close) = self.end(attempts, verdict);
        if failpoint::skips("skip.close") {
            return Ok(());
        }
        let done = self.tried(|| {
            let (reply, answer) = written();
            let (open, call) = (open.clone(), Box::new(close.clone()));
            (Order::Close { open, call, reply: Some(reply) }, answer)
        });
        done.await.map_err(|error| match attempts {
            0 => unavailable(error),
            _ => unknown(error),
        })?;
        failpoint::pass("close.durable");
        Ok(())
    }

    /// Has the end written, with nobody to wait for it.
    pub(super) fn abandon(&mut self, attempts: u32, verdict: Verdict) {
        let (open, call) = self.end(attempts, verdict);
        self.log.submit(Order::Close { open, call: Box::new(call), reply: None });
    }

    fn end(&mut self, attempts: u32, verdict: Verdict) -> (Option<Box<OpenCall>>, CloseCall) {
        let taken = self.clock.now().saturating_duration_since(self.since);
        let entry = self.entry();
        // What was never opened has all its events in one entry; the end has then none of its own.
        let (open, entry) = match self.opened {
            true => (None, entry),
            false => (Some(Box::new(self.open(entry))), Entry::new(&self.audit_id, &[])),
        };
        let close = CloseCall {
            audit_id: self.audit_id.clone(),
            at: self.clock.timestamp(),
            duration_us: u64::try_from(taken.as_micros()).unwrap_or(u64::MAX),
            attempts,
            verdict,
            key: KeyEnd::Free,
            entry,
            outcome: None,
        };
        (open, close)
    }

    fn open(&self, entry: Entry) -> OpenCall {
        OpenCall {
            audit_id: self.audit_id.clone(),
            at: self.at,
            route: self.route.clone(),
            actor: Arc::clone(&self.actor),
            idempotent: self.idempotent,
            key: None,
            resumes: None,
            entry,
            request: None,
        }
    }

    fn entry(&mut self) -> Entry {
        Entry::new(&self.audit_id, &std::mem::take(&mut self.lines))
    }

    async fn tried<T>(&self, order: impl Fn() -> (Order, Written<T>)) -> Result<T, AuditError> {
        let mut waits = WAITS.into_iter();
        loop {
            let (order, answer) = order();
            self.log.submit(order);
            failpoint::pass("submitted");
            match (answer.done().await, waits.next()) {
                (Err(error), Some(wait)) => {
                    tracing::warn!(target: "cofferdam::audit", audit_id = self.audit_id.as_str(), %error, "the record is tried again in {} s", wait.as_secs());
                    self.clock.sleep_until(self.clock.now() + wait).await;
                }
                (answer, _) => return answer,
            }
        }
    }
}

/// How a call ended that has no failure.
pub(super) fn verdict(status: CallStatus) -> Verdict {
    Verdict { status, class: None, code: None }
}

fn unavailable(error: AuditError) -> HostError {
    let message =
        format!("The call was not run, since it could not be recorded: {}.", error.trouble().says());
    HostError::new(HostErrorKind::AuditUnavailable, message)
        .hint("Mend the record (`cofferdam audit verify` looks at it), then call again.")
        .because(error)
}

fn unknown(error: AuditError) -> HostError {
    let message = format!(
        "The call was run, and its outcome is unknown, since it could not be recorded: {}.",
        error.trouble().says()
    );
    HostError::new(HostErrorKind::OutcomeUnknown, message)
        .hint("Look at the service before it is called again; `cofferdam recover list` has it.")
        .because(error)
}
