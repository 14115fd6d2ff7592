//! What one candidate of a call has to do with circuits, from its first attempt to its last.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_core::failure::{AuditId, Cause, CircuitOpen};
use cofferdam_core::private_file::FileLock;
use cofferdam_model::manifest::ConnectorName;
use jiff::Timestamp;

use super::circuit::{Admission, Circuit, CircuitState, Seen, Why};
use super::circuits::{Changed, Circuits, Place, Wait};
use super::mark;
use super::policy::{BreakerPolicy, Weight};

/// How long to wait for the one request that tries a host: nobody knows, and it is worth asking again soon.
const WHILE_PROBED: Duration = Duration::from_secs(1);

/// A circuit that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The host:port.
    pub host: String,
    /// From this state,
    pub from: &'static str,
    /// to this one.
    pub to: &'static str,
    /// What was seen there, or had opened it; none where it was healed.
    pub cause: Option<Cause>,
}

/// A visit while it lasts. Whatever ends it, dropping it lets go of what it holds; what it saw counts only if
/// [`Visit::settle`] was called before.
#[derive(Debug)]
pub struct Visiting(Arc<Visit>);

/// A candidate's visit, as the gates of its attempts share it.
#[derive(Debug)]
pub struct Visit {
    circuits: Arc<Circuits>,
    connector: ConnectorName,
    policy: Arc<BreakerPolicy>,
    audit_id: AuditId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    hosts: Vec<AtHost>,
    /// The number of the attempt that is made.
    attempt: u32,
    changes: Vec<Change>,
    over: bool,
}

/// A host that the visit was admitted to.
#[derive(Debug)]
struct AtHost {
    place: Place,
    /// The last attempt that was admitted to it.
    attempt: u32,
    credential: Option<String>,
    /// Whether there was nothing to remember of it.
    was_pristine: bool,
    /// The slot, where this is the visit that tries the host, and what had opened the circuit.
    probe: Option<(FileLock, Cause)>,
    last: Option<Sight>,
}

/// Another process is writing circuits: it cannot be counted at once.
#[derive(Debug)]
struct NoTurn;

/// What was seen last.
#[derive(Debug, Clone, Copy)]
struct Sight {
    cause: Option<Cause>,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

impl Visiting {
    pub(super) fn new(
        circuits: Arc<Circuits>,
        connector: ConnectorName,
        policy: Arc<BreakerPolicy>,
        audit_id: AuditId,
    ) -> Self {
        Self(Arc::new(Visit { circuits, connector, policy, audit_id, state: Mutex::default() }))
    }
}

impl Deref for Visiting {
    type Target = Arc<Visit>;

    fn deref(&self) -> &Arc<Visit> {
        &self.0
    }
}

impl Drop for Visiting {
    fn drop(&mut self) {
        // The gates' own tasks may end a little later than the call.
        let mut state = self.0.state();
        state.over = true;
        state.hosts.clear();
    }
}

impl Visit {
    /// Whether a request may go to `host` now. `credential` says which state of which bindings it carries, without
    /// any secret. What is decided for the first request of an attempt holds for the attempt: all its requests to a
    /// host that it tries are one trial. A circuit that an earlier candidate
    /// of the same call opened lets it pass, without being the one that tries the host: a smaller model behind the
    /// same host is what the caller asked for next.
    ///
    /// # Errors
    /// The circuit is open, or another call tries the host.
    pub fn admit(
        &self,
        host: &str,
        credential: Option<String>,
        now: Timestamp,
    ) -> Result<(), Box<CircuitOpen>> {
        let credential = credential.map(mark::bounded);
        let mut state = self.state();
        let (attempt, over) = (state.attempt, state.over);
        let known = state.hosts.iter().position(|at| at.place.host == host);
        if let Some(at) = known.and_then(|known| state.hosts.get_mut(known))
            && (at.attempt == attempt || at.probe.is_some())
        {
            at.credential = credential;
            return Ok(());
        }
        let place = self.circuits.place(&self.connector, host);
        let mut slot = None;
        let (probe, was_pristine) = loop {
            let Some(circuit) = self.circuits.look(&place) else { break (None, true) };
            // What this call's own candidate before found out stops other calls, not its alternates.
            if circuit.why(credential.as_deref(), now).is_some_and(|why| self.is_own(why)) {
                break (None, false);
            }
            let (why, retry_after, bindings) = match circuit.admission(credential.as_deref(), now) {
                Admission::Pass => break (None, circuit.is_pristine()),
                Admission::Shut(shut) => (&shut.why, None, shut.bindings()),
                Admission::Open { opening, retry_after } => (&opening.why, Some(retry_after), Vec::new()),
                Admission::Probe(opening) => {
                    let cause = opening.why.cause;
                    // Whoever had the slot before may have decided: only a look with it in hand counts.
                    if let Some(lock) = slot.take() {
                        let (from, to) = (CircuitState::Open.name(), CircuitState::HalfOpen.name());
                        state.changes.push(Change { host: host.to_owned(), from, to, cause: Some(cause) });
                        break (Some((lock, cause)), false);
                    }
                    match self.circuits.probe(&place) {
                        Ok(Some(lock)) if !state.over => {
                            slot = Some(lock);
                            continue;
                        }
                        Ok(_) => {
                            let (state, wait) = (CircuitState::HalfOpen, Some(WHILE_PROBED));
                            return Err(refusal(&place, state, &opening.why, wait, Vec::new()));
                        }
                        Err(error) => {
                            self.circuits.warn(&place, "cannot be locked, and lets requests pass", &error);
                            break (None, false);
                        }
                    }
                }
            };
            return Err(refusal(&place, CircuitState::Open, why, retry_after, bindings));
        };
        match known.and_then(|known| state.hosts.get_mut(known)) {
            Some(at) => {
                at.was_pristine &= was_pristine;
                (at.attempt, at.credential, at.probe) = (attempt, credential, probe);
            }
            None if over => {}
            None => state.hosts.push(AtHost { place, attempt, credential, was_pristine, probe, last: None }),
        }
        Ok(())
    }

    /// Another attempt of the candidate begins: it is admitted to every host anew, since others may have found out
    /// more while it waited.
    pub fn begin_attempt(&self) {
        let mut state = self.state();
        state.attempt = state.attempt.saturating_add(1);
    }

    /// Notes what came of a request to `host`; `cause` is none where it was answered well. The last one counts.
    pub fn saw(&self, host: &str, cause: Option<Cause>, status: Option<u16>, retry_after: Option<Duration>) {
        if let Some(at) = self.state().hosts.iter_mut().find(|at| at.place.host == host) {
            // It answers, and asks for what was not there to be refused: another's credential may be good.
            let asks = matches!(cause, Some(Cause::Auth | Cause::PaymentRequired)) && at.credential.is_none();
            at.last = Some(match asks {
                true => Sight { cause: None, status: None, retry_after: None },
                false => Sight { cause, status, retry_after },
            });
        }
    }

    /// After a failed attempt: whether the candidate must not be attempted again. It was the one request that tries
    /// a host, or others have opened the circuit of a host that it failed at.
    #[must_use]
    pub fn forbids_retry(&self, now: Timestamp) -> bool {
        self.state().hosts.iter().any(|at| {
            let failed = at.last.is_some_and(|last| !self.is_good(last));
            let is_open = || {
                let circuit = self.circuits.look(&at.place);
                let why = circuit.as_ref().and_then(|circuit| circuit.why(at.credential.as_deref(), now));
                why.is_some_and(|why| !self.is_own(why))
            };
            at.probe.is_some() || (failed && is_open())
        })
    }

    /// The candidate is done: what was seen last at each host is counted, and then what the visit holds is let go.
    /// Nobody waits for that: where another process is writing, it is counted a little later on a thread of its
    /// own, which holds the slot until then and tells the operator alone of what changed.
    pub fn settle(self: &Arc<Self>, now: Timestamp) {
        let mut state = self.state();
        state.over = true;
        let mut later = Vec::new();
        for at in std::mem::take(&mut state.hosts) {
            match self.close(&at, now, Wait::Never) {
                Ok(change) => state.changes.extend(change),
                Err(NoTurn) => later.push(at),
            }
        }
        drop(state);
        if later.is_empty() {
            return;
        }
        let visit = Arc::clone(self);
        let count = move || {
            for at in later {
                if let Ok(Some(change)) = visit.close(&at, now, Wait::ForTurn) {
                    visit.circuits.tell(&at.place, change.from, change.to);
                }
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(count)),
            Err(_) => count(),
        }
    }

    /// Counts what was seen last at one host.
    fn close(&self, at: &AtHost, now: Timestamp, wait: Wait) -> Result<Option<Change>, NoTurn> {
        let change = match at.last {
            Some(last) => self.count(at, last, now, wait)?,
            // The one request that was let through told nothing: it is as open as before.
            None => {
                at.probe.as_ref().map(|(_, cause)| (CircuitState::HalfOpen, CircuitState::Open, Some(*cause)))
            }
        };
        Ok(change.map(|(from, to, cause)| {
            if at.probe.is_some() && to == CircuitState::Closed {
                self.circuits.forget_probe(&at.place);
            }
            Change { host: at.place.host.clone(), from: from.name(), to: to.name(), cause }
        }))
    }

    /// The circuits that changed since this was asked last, in order.
    #[must_use]
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.state().changes)
    }

    fn count(
        &self,
        at: &AtHost,
        last: Sight,
        now: Timestamp,
        wait: Wait,
    ) -> Result<Option<(CircuitState, CircuitState, Option<Cause>)>, NoTurn> {
        if at.was_pristine && self.is_good(last) {
            return Ok(None);
        }
        let seen = Seen {
            cause: last.cause,
            status: last.status,
            retry_after: last.retry_after,
            credential: at.credential.as_deref(),
            audit_id: self.audit_id.as_str(),
        };
        let probed = at.probe.is_some();
        // Most of what is seen of a circuit that is open already changes nothing: then nobody needs a turn.
        let before = self.circuits.look(&at.place).unwrap_or_default();
        let mut foreseen = (*before).clone();
        if foreseen.count(&self.policy, &seen, probed, now).is_none() && foreseen == *before {
            return Ok(None);
        }
        let count = |circuit: &mut Circuit| circuit.count(&self.policy, &seen, probed, now);
        match self.circuits.change(&at.place, wait, count) {
            Changed::Done(Some((from, to))) => {
                Ok(Some((from, to, last.cause.filter(|_| to != CircuitState::Closed))))
            }
            Changed::Done(None) | Changed::Failed => Ok(None),
            Changed::NoTurn => Err(NoTurn),
        }
    }

    /// Whether an earlier candidate of the same call found this out.
    fn is_own(&self, why: &Why) -> bool {
        why.audit_id == self.audit_id.as_str()
    }

    fn is_good(&self, last: Sight) -> bool {
        self.policy.weight(last.cause, last.retry_after) == Weight::Good
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refusal(
    place: &Place,
    state: CircuitState,
    why: &Why,
    retry_after: Option<Duration>,
    bindings: Vec<String>,
) -> Box<CircuitOpen> {
    Box::new(CircuitOpen {
        connector: place.connector.to_string(),
        host: place.host.clone(),
        state: state.name(),
        opened_at: why.at,
        retry_after_ms: retry_after
            .map(|wait| u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)),
        cause: why.cause,
        status: why.status,
        cause_audit_id: why.audit_id.clone(),
        bindings,
    })
}
