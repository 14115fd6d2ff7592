//! The script of a service: which request is expected next, how one differs from it, and what came.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cofferdam_core::event::{Event, EventKind, EventSource, Listener};
use cofferdam_model::manifest::{HostGrant, Manifest, UrlScheme};
use cofferdam_runtime::call::Cancellation;
use http::HeaderName;
use http::header::CONTENT_LENGTH;
use serde_json::{Map, Value};

use super::wire::WireRequest;
use crate::contract::InjectedFault;
use crate::scenario::{
    Answer, BodyPattern, CertificateFault, Difference, Fault, RequestPattern, ScriptedResponse, ServiceStep,
    TextPattern,
};

/// The longest body that is shown in a difference, in bytes.
const SHOWN_BODY_BYTES: usize = 4 * 1024;

/// A fault that is put in the place of one answer of a script.
#[derive(Debug, Clone)]
pub(crate) struct Injection {
    /// The step of the script.
    pub(crate) step: usize,
    /// The number of the request among those of the step in one attempt, from 0.
    pub(crate) nth: u32,
    pub(crate) fault: InjectedFault,
    /// True if the second such request is answered as the script says.
    pub(crate) once: bool,
}

/// A request that came, and what was made of it.
#[derive(Debug, Clone)]
pub(crate) struct SeenRequest {
    /// The index of the call.
    pub(crate) call: usize,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// The step that it matched.
    pub(crate) step: Option<usize>,
    /// The number of the request among those of the step in this attempt, from 0.
    pub(crate) nth: u32,
    pub(crate) host: HostGrant,
    /// None if the connection was refused or failed before it could be read.
    pub(crate) request: Option<WireRequest>,
    /// The value of the field with the call's idempotency key, if it carries it.
    pub(crate) key: Option<String>,
    /// True if a service would have carried it out.
    pub(crate) is_executed: bool,
}

/// A request that was not expected.
#[derive(Debug, Clone)]
pub(crate) struct UnexpectedRequest {
    pub(crate) call: usize,
    pub(crate) method: String,
    pub(crate) url: String,
    /// The step that it is most similar to, and how it differs from that; none if no more requests are expected.
    pub(crate) nearest: Option<(usize, Vec<Difference>)>,
}

/// The reaction to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reaction {
    Respond(ScriptedResponse),
    Fault(Fault),
    /// The half of the response, and the end of the connection.
    Truncate(ScriptedResponse),
    /// The call is cancelled: after the response, if there is one.
    Cancel(Option<ScriptedResponse>),
    /// There is no response: the scenario has failed.
    HangUp,
}

/// The reaction to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionFault {
    Refuse,
    Certificate(CertificateFault),
}

/// The script of one run of a scenario, and its state.
pub(crate) struct Script {
    steps: Vec<ServiceStep>,
    unordered: bool,
    /// The parameters of a query that credentials write.
    credential_parameters: Vec<String>,
    /// The header fields that credentials write: signatures and dates of the host's, which differ between attempts.
    credential_headers: Vec<HeaderName>,
    injection: Option<Injection>,
    /// True if each attempt of a call begins where the first one did.
    replays_attempts: bool,
    state: Mutex<ScriptState>,
}

#[derive(Default)]
struct ScriptState {
    /// The number of requests that each step has answered.
    served: Vec<u32>,
    /// The same at the beginning of the call.
    served_before: Vec<u32>,
    call: usize,
    attempt: u32,
    /// The call's idempotency key.
    key: String,
    /// True if the caller gave the key.
    key_is_given: bool,
    cancellation: Option<Cancellation>,
    injected: u32,
    requests: Vec<SeenRequest>,
    unexpected: Vec<UnexpectedRequest>,
    /// The values that matched `{{key}}`, by their place, attempt by attempt.
    keys: BTreeMap<(usize, String, String), BTreeMap<u32, Vec<String>>>,
    /// The calls whose connector said that it passed over an error.
    suppressing: Vec<usize>,
}

/// The result of a script when its calls are done.
pub(crate) struct ScriptEnd {
    pub(crate) requests: Vec<SeenRequest>,
    pub(crate) unexpected: Vec<UnexpectedRequest>,
    /// The steps that were not served as often as expected, and how often they were.
    pub(crate) unserved: Vec<(usize, u32)>,
    pub(crate) suppressing: Vec<usize>,
}

impl Script {
    pub(crate) fn new(steps: &[ServiceStep], unordered: bool, manifest: &Manifest) -> Self {
        let parameters = manifest.credentials().iter().filter_map(|grant| grant.placement().query());
        let headers = manifest.credentials().iter().flat_map(|grant| grant.placement().headers());
        let state = ScriptState { served: vec![0; steps.len()], ..ScriptState::default() };
        Self {
            steps: steps.to_vec(),
            unordered,
            credential_parameters: parameters.map(ToOwned::to_owned).collect(),
            credential_headers: headers.cloned().collect(),
            injection: None,
            replays_attempts: false,
            state: Mutex::new(state),
        }
    }

    /// Has each attempt of a call begin where the first one did, as a service does that knows no attempts; with a fault
    /// in the place of one answer, if there is one.
    pub(crate) fn replaying(mut self, injection: Option<Injection>) -> Self {
        (self.replays_attempts, self.injection) = (true, injection);
        self
    }

    fn state(&self) -> MutexGuard<'_, ScriptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the call of this index, with the key that its caller gives; `cancellation` ends it.
    pub(crate) fn begin_call(&self, index: usize, key: Option<&str>, cancellation: Cancellation) {
        let mut state = self.state();
        state.served_before = state.served.clone();
        (state.key, state.key_is_given) = (key.unwrap_or_default().to_owned(), key.is_some());
        (state.call, state.attempt, state.cancellation) = (index, 1, Some(cancellation));
    }

    /// Returns whether a request came that was not expected.
    pub(crate) fn has_failed(&self) -> bool {
        !self.state().unexpected.is_empty()
    }

    /// Ends the script.
    pub(crate) fn end(&self) -> ScriptEnd {
        let mut state = self.state();
        let served = std::mem::take(&mut state.served);
        let unserved = self.steps.iter().zip(served).enumerate();
        let unserved = unserved.filter(|(_, (step, served))| *served < step.times);
        ScriptEnd {
            unserved: unserved.map(|(at, (_, served))| (at, served)).collect(),
            requests: std::mem::take(&mut state.requests),
            unexpected: std::mem::take(&mut state.unexpected),
            suppressing: std::mem::take(&mut state.suppressing),
        }
    }

    /// Returns the steps that may come next.
    fn candidates<'s>(&'s self, state: &ScriptState) -> impl Iterator<Item = (usize, &'s ServiceStep)> {
        let open = self.steps.iter().enumerate().zip(&state.served);
        let open = open.filter(|((_, step), served)| **served < step.times).map(|(step, _)| step);
        open.take(if self.unordered { usize::MAX } else { 1 })
    }

    /// Returns the injection, if it is for the next request of this step.
    fn injection_at(&self, state: &ScriptState, step: usize) -> Option<&Injection> {
        let injection = self.injection.as_ref().filter(|injection| injection.step == step)?;
        let is_next = nth(state, step) == injection.nth;
        (is_next && !(injection.once && state.injected > 0)).then_some(injection)
    }

    /// Returns the fault of a connection to `host` that is opened now, and counts it as the request that was expected.
    ///
    /// A refusal is decided before the connection is opened (`is_open` is false), a certificate after it.
    pub(crate) fn connection_fault(
        &self,
        host: &str,
        port: Option<u16>,
        is_open: bool,
    ) -> Option<ConnectionFault> {
        let mut state = self.state();
        let (at, step) = self.candidates(&state).next()?;
        let expected = &step.request.host;
        if expected.host() != host || port.is_some_and(|port| port != expected.port()) {
            return None;
        }
        let injected = self.injection_at(&state, at).is_some_and(|it| it.fault == InjectedFault::Refused);
        let fault = match &step.answer {
            _ if injected => ConnectionFault::Refuse,
            Answer::Fault(Fault::Refuse) => ConnectionFault::Refuse,
            Answer::Fault(Fault::Tls(certificate)) => ConnectionFault::Certificate(*certificate),
            _ => return None,
        };
        if is_open == (fault == ConnectionFault::Refuse) {
            return None;
        }
        let host = step.request.host.clone();
        state.injected += u32::from(injected);
        let seen = SeenRequest {
            call: state.call,
            attempt: state.attempt,
            step: Some(at),
            nth: nth(&state, at),
            host,
            request: None,
            key: None,
            is_executed: false,
        };
        state.requests.push(seen);
        serve(&mut state, at);
        Some(fault)
    }

    /// Cancels the call.
    pub(crate) fn cancel_call(&self) {
        cancel(&self.state());
    }

    /// Decides about a request that came to `host`.
    pub(crate) fn receive(&self, host: HostGrant, request: WireRequest) -> Reaction {
        let mut state = self.state();
        let key = state.key.clone();
        let mut nearest: Option<(usize, Vec<Difference>)> = None;
        let mut matched = None;
        for (at, step) in self.candidates(&state) {
            let differences = self.compare(&step.request, &host, &request, &key);
            if differences.is_empty() {
                matched = Some((at, step));
                break;
            }
            if nearest.as_ref().is_none_or(|(_, known)| differences.len() < known.len()) {
                nearest = Some((at, differences));
            }
        }
        let matched = match matched {
            Some((at, step)) => match remember_keys(&mut state, step, &request) {
                differences if differences.is_empty() => Some((at, step)),
                differences => {
                    nearest = Some((at, differences));
                    None
                }
            },
            None => None,
        };
        let mut seen = SeenRequest {
            call: state.call,
            attempt: state.attempt,
            step: matched.map(|(at, _)| at),
            nth: matched.map_or(0, |(at, _)| nth(&state, at)),
            key: key_in(&request, &key),
            is_executed: false,
            host,
            request: None,
        };
        let Some((at, step)) = matched else {
            let url = format!("{}{}", url_of(&seen.host), request.target);
            let method = request.method.clone();
            state.unexpected.push(UnexpectedRequest { call: seen.call, method, url, nearest });
            seen.request = Some(request);
            state.requests.push(seen);
            // Further attempts would only add further requests that are not expected.
            cancel(&state);
            return Reaction::HangUp;
        };
        let injected = self.injection_at(&state, at).map(|injection| injection.fault);
        let reaction = match injected {
            Some(fault) => fault.reaction(&step.answer),
            None => match &step.answer {
                Answer::Response(response) => Reaction::Respond(response.clone()),
                Answer::Fault(fault) => Reaction::Fault(fault.clone()),
            },
        };
        state.injected += u32::from(injected.is_some());
        // An error says that nothing was done. Without an answer, it may have been done.
        seen.is_executed = match &reaction {
            Reaction::Respond(response) | Reaction::Cancel(Some(response)) => response.status.as_u16() < 400,
            _ => true,
        };
        seen.request = Some(request);
        state.requests.push(seen);
        serve(&mut state, at);
        reaction
    }

    /// Returns the ways in which a request is not the expected one.
    fn compare(
        &self,
        expected: &RequestPattern,
        host: &HostGrant,
        request: &WireRequest,
        key: &str,
    ) -> Vec<Difference> {
        let mut found = Vec::new();
        if expected.method.as_str() != request.method {
            found.push(Difference::new("method", &expected.method, &request.method));
        }
        if expected.host != *host {
            found.push(Difference::new("host", &expected.host, host));
        }
        if !expected.path.matches(request.path(), key) {
            found.push(Difference::new("path", expected.path.source(), request.path()));
        }
        self.compare_query(expected, request, key, &mut found);
        for (name, pattern) in &expected.headers {
            if self.replays_attempts && self.credential_headers.contains(name) {
                continue;
            }
            let values: Vec<_> = request
                .headers
                .get_all(name)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            let path = format!("headers.{name}");
            match values.is_empty() {
                true => found.push(Difference::new(path, pattern.source(), "nothing")),
                false if values.iter().any(|value| pattern.matches(value, key)) => {}
                false => found.push(Difference::new(path, pattern.source(), values.join(", "))),
            }
        }
        match &expected.body {
            None => {}
            Some(BodyPattern::Text(pattern)) => {
                let text = String::from_utf8_lossy(&request.body);
                if !pattern.matches(&text, key) {
                    found.push(Difference::new("body", pattern.source(), text));
                }
            }
            Some(BodyPattern::Json(pattern)) => match serde_json::from_slice::<Value>(&request.body) {
                Ok(json) => pattern.compare(&json, "json", key, &mut found),
                Err(_) => {
                    let start = request.body.get(..SHOWN_BODY_BYTES).unwrap_or(&request.body);
                    let text = format!("not JSON: {}", String::from_utf8_lossy(start));
                    found.push(Difference::new("json", pattern.shown(), text));
                }
            },
            Some(BodyPattern::Form(pattern)) => {
                pattern.compare(&form_json(&request.body), "form", key, &mut found);
            }
        }
        found
    }

    fn compare_query(
        &self,
        expected: &RequestPattern,
        request: &WireRequest,
        key: &str,
        found: &mut Vec<Difference>,
    ) {
        let mut actual: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(request.query().as_bytes()) {
            if !self.credential_parameters.iter().any(|own| own.eq_ignore_ascii_case(&name)) {
                actual.entry(name.into_owned()).or_default().push(value.into_owned());
            }
        }
        for (name, patterns) in &expected.query {
            let path = format!("query.{name}");
            let shown = || patterns.iter().map(TextPattern::source).collect::<Vec<_>>().join(", ");
            match actual.remove(name) {
                None => found.push(Difference::new(path, shown(), "nothing")),
                Some(values) => {
                    let same = values.len() == patterns.len()
                        && patterns.iter().zip(&values).all(|(pattern, value)| pattern.matches(value, key));
                    if !same {
                        found.push(Difference::new(path, shown(), values.join(", ")));
                    }
                }
            }
        }
        for (name, values) in actual.into_iter().filter(|_| !expected.open_query) {
            found.push(Difference::new(format!("query.{name}"), "nothing", values.join(", ")));
        }
    }
}

impl Listener for Script {
    fn event(&self, event: &Event<'_>) {
        let mut state = self.state();
        match event.kind {
            // Without a key of its caller's, the call's id is its key.
            EventKind::Received { .. } if !state.key_is_given => {
                event.audit_id.as_str().clone_into(&mut state.key);
            }
            EventKind::AttemptStarted { attempt, .. } => {
                state.attempt = attempt;
                if self.replays_attempts && attempt > 1 {
                    state.served = state.served_before.clone();
                }
            }
            EventKind::RetryScheduled { .. }
                if self.injection.as_ref().is_some_and(|it| it.fault == InjectedFault::CancelledInWait) =>
            {
                cancel(&state);
            }
            EventKind::Suppressed { by: EventSource::Connector, .. } => {
                let call = state.call;
                state.suppressing.push(call);
            }
            _ => {}
        }
    }
}

fn cancel(state: &ScriptState) {
    if let Some(cancellation) = &state.cancellation {
        cancellation.cancel();
    }
}

/// Returns the number of requests of this step so far in the attempt.
fn nth(state: &ScriptState, step: usize) -> u32 {
    let count = |served: &[u32]| served.get(step).copied().unwrap_or(0);
    count(&state.served).saturating_sub(count(&state.served_before))
}

fn serve(state: &mut ScriptState, step: usize) {
    if let Some(served) = state.served.get_mut(step) {
        *served += 1;
    }
}

/// Remembers the values that the request has for `{{key}}`. Returns those that differ from the same request of an
/// earlier attempt: a service would take the two for different ones.
fn remember_keys(state: &mut ScriptState, step: &ServiceStep, request: &WireRequest) -> Vec<Difference> {
    let mut found = Vec::new();
    for (name, _) in step.request.headers.iter().filter(|(_, pattern)| pattern.source() == "{{key}}") {
        let Some(value) = header_text(request, name) else { continue };
        let place = (state.call, format!("{} {}", request.method, request.path()), name.to_string());
        let attempts = state.keys.entry(place).or_default();
        let own = attempts.entry(state.attempt).or_default();
        own.push(value.clone());
        let at = own.len() - 1;
        let first = attempts.values().next().and_then(|first| first.get(at));
        if let Some(first) = first.filter(|first| **first != value) {
            let expected = format!("{first}, as in the first attempt");
            found.push(Difference::new(format!("headers.{name}"), expected, value));
        }
    }
    found
}

fn header_text(request: &WireRequest, name: &HeaderName) -> Option<String> {
    request.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Returns the first field value that is the key, or the key with a label, as the host decides it.
fn key_in(request: &WireRequest, key: &str) -> Option<String> {
    let is_key = |value: &[u8]| {
        let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        let rest = inner.unwrap_or(value).strip_prefix(key.as_bytes());
        rest.is_some_and(|rest| matches!(rest, [] | [b':', _, ..]))
    };
    let mut fields = request.headers.iter().filter(|(name, _)| *name != CONTENT_LENGTH && !key.is_empty());
    let (_, value) = fields.find(|(_, value)| is_key(value.as_bytes()))?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Returns the URL of a granted host, without a path.
pub(crate) fn url_of(host: &HostGrant) -> String {
    match (host.scheme(), host.port()) {
        (UrlScheme::Https, 443) => format!("https://{}", host.host()),
        (UrlScheme::Https, port) => format!("https://{}:{port}", host.host()),
        (UrlScheme::Http, 80) => format!("http://{}", host.host()),
        (UrlScheme::Http, port) => format!("http://{}:{port}", host.host()),
    }
}

/// Returns a form as an object of texts; a name that is repeated has a list.
fn form_json(body: &[u8]) -> Value {
    let mut fields = Map::new();
    for (name, value) in url::form_urlencoded::parse(body) {
        let value = Value::from(value.into_owned());
        match fields.get_mut(name.as_ref()) {
            None => drop(fields.insert(name.into_owned(), value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    fields.into()
}
