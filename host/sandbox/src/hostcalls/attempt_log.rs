//! The observations of the gates in one attempt: the verdict that ended it, the failed requests, the counts.
//!
//! A gate runs inside the guest's call or in a concurrent task; either way its decision must end the attempt,
//! regardless of the guest's next step. So the verdict is recorded here, the first one wins, and the attempt
//! wakes and drops the guest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_core::failure::{
    BindingProblem, CircuitOpen, Denial, DenialCode, LimitHit, LimitKind, RequestPhase,
};
use cofferdam_core::secret::SecretMatch;
use cofferdam_egress::egress::{AuthorizationError, VaultFailure};
use tokio::sync::Notify;

use super::request_log::{RequestLog, RequestNumber};
use crate::memory::MemoryAccount;

/// The reason why a gate ended the attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Termination {
    /// A capability check refused.
    Denied(Denial),
    /// A limit that a gate counts was hit.
    Limit(LimitHit),
    /// A credential that a request needs is not available.
    Binding(BindingProblem),
    /// The circuit to a host is open.
    Circuit(Box<CircuitOpen>),
    /// The vault cannot be used: an error of the host, which is no outcome of the call.
    Host(VaultFailure),
}

impl Termination {
    /// Returns the verdict on a count above its limit.
    pub(crate) fn over(limit: LimitKind, configured: u64, used: u64) -> Self {
        Self::Limit(LimitHit::new(limit, configured, used))
    }

    /// Returns the code of the failure or the error that the attempt ends with.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Denied(denial) => denial.code().name(),
            Self::Limit(hit) => hit.limit.code(),
            Self::Binding(problem) => problem.code().name(),
            Self::Circuit(_) => "circuit_open",
            Self::Host(failure) => failure.kind.code(),
        }
    }

    /// Returns the verdict on a secret in a request, to `host` if that contains none itself.
    pub(super) fn secret_in_request(host: Option<&str>, found: SecretMatch) -> Self {
        let passing = host.map_or_else(|| "request".to_owned(), |host| format!("request:{host}"));
        let bindings = binding_name(found).into_iter().collect();
        Self::Denied(Denial::for_secret(DenialCode::SecretInRequest, &passing, bindings))
    }

    /// Returns the verdict on a secret in a response to a request that carried `bindings`.
    pub(super) fn secret_in_response(host: &str, found: SecretMatch, bindings: &[String]) -> Self {
        let bindings = binding_name(found).map_or_else(|| bindings.to_vec(), |name| vec![name]);
        let passing = format!("response:{host}");
        Self::Denied(Denial::for_secret(DenialCode::SecretReflected, &passing, bindings))
    }
}

fn binding_name(found: SecretMatch) -> Option<String> {
    (!found.binding.is_empty()).then(|| found.binding.to_string())
}

impl From<AuthorizationError> for Termination {
    fn from(refused: AuthorizationError) -> Self {
        match refused {
            AuthorizationError::Binding(problem) => Self::Binding(problem),
            AuthorizationError::Denied(denial) => Self::Denied(denial),
            AuthorizationError::Host(trouble) => Self::Host(trouble),
        }
    }
}

/// A request that failed, as the gate saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenFault {
    pub(crate) host: String,
    pub(crate) phase: RequestPhase,
    pub(crate) code: &'static str,
    pub(crate) request_sent: bool,
}

/// One attempt's ledger.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    memory: MemoryAccount,
    termination: Mutex<Option<Termination>>,
    ended: Notify,
    faults: Mutex<Vec<SeenFault>>,
    /// The observations of each request.
    pub(crate) request_log: RequestLog,
    maybe_sent: AtomicU64,
    /// True if the attempt was judged by the requests it had sent.
    closed: Mutex<bool>,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_out: Arc<AtomicU64>,
    pub(crate) bytes_in: Arc<AtomicU64>,
}

impl AttemptLog {
    /// Creates the ledger of an attempt whose guest may use so many bytes of memory, including the memory
    /// that the host holds for it.
    pub(crate) fn new(memory: u64) -> Self {
        Self {
            memory: MemoryAccount::new(memory),
            termination: Mutex::default(),
            ended: Notify::new(),
            faults: Mutex::default(),
            request_log: RequestLog::default(),
            maybe_sent: AtomicU64::new(0),
            closed: Mutex::new(false),
            requests: AtomicU64::new(0),
            bytes_out: Arc::default(),
            bytes_in: Arc::default(),
        }
    }

    /// Returns the memory account of the attempt.
    pub(crate) fn memory(&self) -> &MemoryAccount {
        &self.memory
    }

    /// Ends the attempt with `verdict`, unless another came first.
    pub(crate) fn end(&self, verdict: Termination) {
        lock(&self.termination).get_or_insert(verdict);
        self.ended.notify_waiters();
    }

    /// The verdict, once there is one.
    pub(crate) fn termination(&self) -> Option<Termination> {
        lock(&self.termination).clone()
    }

    /// Returns true if a gate ended the attempt: from then on no other request may leave.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.termination).is_some()
    }

    /// Completes when a gate ends the attempt; it supports several waiters.
    pub(crate) async fn ended(&self) {
        loop {
            // Created before the check, so that a verdict after the check wakes it.
            let ended = self.ended.notified();
            if self.is_over() {
                return;
            }
            ended.await;
        }
    }

    /// Counts one more request and returns its number.
    pub(crate) fn count_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Records a request that failed.
    pub(crate) fn saw_fault(&self, fault: SeenFault) {
        lock(&self.faults).push(fault);
    }

    /// Records that a request is about to be sent, with a first line of so many bytes; returns whether it may
    /// be. Until it is known that nothing of it left ([`mark_unsent`](Self::mark_unsent)) it counts as sent, even if
    /// its end is not awaited.
    pub(crate) fn mark_sending(&self, number: RequestNumber, line: u64) -> bool {
        // Held until everything is recorded: a judgement after `close` is final.
        let closed = lock(&self.closed);
        if *closed {
            return false;
        }
        self.request_log.update(number, |request| request.mark_sending(line));
        self.maybe_sent.fetch_add(1, Ordering::Relaxed);
        self.bytes_out.fetch_add(line, Ordering::Relaxed);
        true
    }

    /// Ends the attempt's requests: a request that has not begun to leave will not. The attempt can then be judged by
    /// what it sent.
    pub(crate) fn close(&self) {
        *lock(&self.closed) = true;
    }

    /// Records that nothing of a request that was about to be sent has left, and nothing will.
    pub(crate) fn mark_unsent(&self, number: RequestNumber, line: u64) {
        self.request_log.update(number, |request| request.mark_unsent(line));
        self.maybe_sent.fetch_sub(1, Ordering::Relaxed);
        self.bytes_out.fetch_sub(line, Ordering::Relaxed);
    }

    /// Returns true if any byte of any request of this attempt may have reached a server. This decides
    /// whether the attempt as a whole may have had an effect.
    pub(crate) fn anything_sent(&self) -> bool {
        self.maybe_sent.load(Ordering::Relaxed) > 0
    }

    /// The last request that failed, of the phase the guest names if it names one.
    pub(crate) fn fault(&self, phase: Option<RequestPhase>) -> Option<SeenFault> {
        let faults = lock(&self.faults);
        faults.iter().rfind(|fault| phase.is_none_or(|phase| fault.phase == phase)).or(faults.last()).cloned()
    }

    /// Returns the failures that may be temporary, each in a few words: requests without an answer, 5xx, 429.
    pub(crate) fn transient_failures(&self) -> Vec<String> {
        let faults = lock(&self.faults);
        let faults = faults.iter().map(|fault| {
            let SeenFault { host, phase, code, .. } = fault;
            format!("the request to {host} failed in the {} phase ({code})", phase.name())
        });
        faults.chain(self.request_log.transient_answers()).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The state is consistent after every statement, so a panic elsewhere leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
