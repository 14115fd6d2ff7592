//! The running call of a native test.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

use super::expectation::{Answer, Expectation, ScriptedAnswer};
use super::observed::{LogLine, SentRequest, SuppressedError};
use crate::http::labels::Labels;
use crate::http::request::PreparedRequest;
use crate::http::{Error, Request, Response};

thread_local! {
    /// The calls of this thread, the newest last.
    static CALLS: RefCell<Vec<Rc<RefCell<CallState>>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `function` with the newest call of the thread. None if there is no call.
pub(super) fn current<T>(function: impl FnOnce(&Rc<RefCell<CallState>>) -> T) -> Option<T> {
    let newest = CALLS.with_borrow(|calls| calls.last().cloned());
    newest.as_ref().map(function)
}

/// The facts of a call, the script of its services, and everything that it has received.
#[derive(Default)]
pub(super) struct CallState {
    pub(super) key: String,
    pub(super) attempt: u32,
    pub(super) deadline_ms: u64,
    pub(super) unbound: Vec<String>,
    pub(super) log_lines: Vec<LogLine>,
    pub(super) suppressed: Vec<SuppressedError>,
    is_in_order: bool,
    labels: Labels,
    answers: Vec<ScriptedAnswer>,
    requests: Vec<SentRequest>,
    /// The report of a request that had no answer.
    unexpected: Option<String>,
}

/// A running call: what the SDK asks of the host, it asks of the thread's newest `Call` instead.
///
/// It ends when it is dropped, and panics then if an expected request was not sent. Tests run in threads of their
/// own, so each has its own call.
#[must_use = "the call ends when this value is dropped: bind it to a name"]
pub struct Call(Rc<RefCell<CallState>>);

impl Call {
    /// Starts a call in this thread: its first attempt, with the idempotency key `test-call`, 30 seconds until the
    /// deadline, and every credential bound.
    #[expect(clippy::new_without_default, reason = "it changes the thread; a default value should not")]
    pub fn new() -> Self {
        let state =
            CallState { key: "test-call".to_owned(), attempt: 1, deadline_ms: 30_000, ..Default::default() };
        let state = Rc::new(RefCell::new(state));
        CALLS.with_borrow_mut(|calls| calls.push(Rc::clone(&state)));
        Self(state)
    }

    /// Sets the key of the call, see [`call::idempotency_key`](crate::call::idempotency_key).
    pub fn with_idempotency_key(self, key: impl Into<String>) -> Self {
        self.0.borrow_mut().key = key.into();
        self
    }

    /// Sets the number of the attempt, see [`call::attempt`](crate::call::attempt).
    pub fn with_attempt(self, attempt: u32) -> Self {
        self.0.borrow_mut().attempt = attempt;
        self
    }

    /// Sets the time that is left, see [`call::deadline`](crate::call::deadline). It does not run down.
    pub fn with_deadline(self, left: Duration) -> Self {
        self.0.borrow_mut().deadline_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Leaves a service's optional credential unbound, see [`credential::handle`](crate::credential::handle).
    pub fn without_credential(self, service: impl Into<String>) -> Self {
        self.0.borrow_mut().unbound.push(service.into());
        self
    }

    /// Requires that the expected requests are sent in the order in which they are written.
    pub fn in_order(self) -> Self {
        self.0.borrow_mut().is_in_order = true;
        self
    }

    /// Expects a request exactly once. It is written as the connector writes it.
    ///
    /// A request fits if it has the method and the path, and every query pair and header that is written here; it
    /// may have more of both. The body must be the same if one is written here: JSON is compared by value, a form
    /// by its pairs. The answers to equal requests are given in the order in which they are written.
    ///
    /// # Panics
    ///
    /// If the request cannot be built.
    #[track_caller]
    pub fn expect(&self, request: Request) -> Expectation<'_> {
        Expectation::new(self, prepared(request), Location::caller(), true)
    }

    /// Allows a request any number of times, and none. It fits as for [`expect`](Self::expect), which goes first.
    ///
    /// # Panics
    ///
    /// If the request cannot be built.
    #[track_caller]
    pub fn allow(&self, request: Request) -> Expectation<'_> {
        Expectation::new(self, prepared(request), Location::caller(), false)
    }

    /// Begins the next attempt of this call, as the host does when it retries: the key stays the same.
    pub fn next_attempt(&self) {
        let mut state = self.0.borrow_mut();
        state.attempt = state.attempt.saturating_add(1);
        state.labels = Labels::new();
    }

    /// Returns the requests that were sent, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<SentRequest> {
        self.0.borrow().requests.clone()
    }

    /// Returns the lines that were logged, in order.
    #[must_use]
    pub fn log_lines(&self) -> Vec<LogLine> {
        self.0.borrow().log_lines.clone()
    }

    /// Returns the errors that were suppressed, in order.
    #[must_use]
    pub fn suppressed(&self) -> Vec<SuppressedError> {
        self.0.borrow().suppressed.clone()
    }

    pub(super) fn add(&self, answer: ScriptedAnswer) {
        self.0.borrow_mut().answers.push(answer);
    }
}

#[track_caller]
fn prepared(request: Request) -> PreparedRequest {
    request.prepare().unwrap_or_else(|error| panic!("the expected request is wrong: {error}"))
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.with_borrow_mut(|calls| calls.retain(|call| !Rc::ptr_eq(call, &self.0)));
        // A test that fails already reports its own reason.
        if !std::thread::panicking()
            && let Some(report) = self.0.borrow().problem()
        {
            panic!("{report}");
        }
    }
}

impl CallState {
    /// Finds the answer to a request: expected requests go before allowed ones.
    fn answer(&mut self, sent: &SentRequest) -> Option<Answer> {
        let is_in_order = self.is_in_order;
        let open = self.answers.iter_mut().filter(|answer| answer.is_required && !answer.is_given);
        let expected =
            open.take(if is_in_order { 1 } else { usize::MAX }).find(|it| it.difference(sent).is_none());
        if let Some(expected) = expected {
            return Some(expected.take());
        }
        let mut allowed = self.answers.iter_mut().filter(|answer| !answer.is_required);
        allowed.find(|it| it.difference(sent).is_none()).map(ScriptedAnswer::take)
    }

    /// Describes a request that has no answer, and why no answer fits.
    fn unexpected(&self, sent: &SentRequest) -> String {
        let mut report = format!("the connector sent a request that the test does not expect:\n\n{sent}\n\n");
        if self.answers.is_empty() {
            report.push_str("The test expects no request: add `call.expect(..)` before the operation.");
            return report;
        }
        report.push_str("The test expects:");
        // In order, only the first open answer can have fitted: of the others their turn says more.
        let mut is_turn = true;
        for answer in &self.answers {
            let is_open = answer.is_required && !answer.is_given;
            let is_later = self.is_in_order && is_open && !std::mem::replace(&mut is_turn, false);
            let why = match answer.difference(sent) {
                _ if answer.is_required && answer.is_given => "was sent already".to_owned(),
                _ if is_later => "comes later".to_owned(),
                difference => difference.unwrap_or_default(),
            };
            // Writing to a string cannot fail.
            let _ = write!(report, "\n  {}: {why}", answer.summary());
        }
        report
    }

    /// Describes the reason that a test with this call has to fail. None if there is none.
    fn problem(&self) -> Option<String> {
        if let Some(unexpected) = &self.unexpected {
            return Some(unexpected.clone());
        }
        let missing = self.answers.iter().filter(|answer| answer.is_required && !answer.is_given);
        let missing: String = missing.map(|answer| format!("\n  {}", answer.summary())).collect();
        if missing.is_empty() {
            return None;
        }
        let sent = self.requests.iter().map(|sent| format!("\n  {} {}", sent.method(), sent.url()));
        let sent = sent.reduce(|all, one| all + &one).unwrap_or_else(|| " nothing".to_owned());
        Some(format!("the connector did not send these requests:{missing}\nIt sent:{sent}"))
    }
}

/// Answers a request by the script of a call.
#[track_caller]
pub(super) fn send(state: &RefCell<CallState>, request: PreparedRequest) -> Result<Response, Error> {
    state.borrow_mut().labels.take_all(&request)?;
    let url = request.url.clone();
    let sent = SentRequest::new(request);
    let answer = {
        let mut state = state.borrow_mut();
        state.requests.push(sent.clone());
        state.answer(&sent)
    };
    let Some(answer) = answer else {
        let report = state.borrow().unexpected(&sent);
        // A connector that catches the panic does not hide it: the end of the call reports it again.
        state.borrow_mut().unexpected = Some(report.clone());
        panic!("{report}");
    };
    // The call is not borrowed here: the answer may look at it.
    answer(&sent).map(|response| response.received_from(url))
}
