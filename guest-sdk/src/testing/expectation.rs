//! The answers that a test scripts, and the requests that they are for.

use std::panic::Location;
use std::rc::Rc;

use serde::Serialize;

use super::call::Call;
use super::observed::SentRequest;
use crate::NetworkPhase;
use crate::http::request::PreparedRequest;
use crate::http::{Error, Response};

/// A request that a test expects or allows, until its answer is given: see [`Call::expect`] and [`Call::allow`].
#[must_use = "a request without an answer is not expected: add respond, respond_json, respond_with or fail"]
pub struct Expectation<'call> {
    call: &'call Call,
    request: SentRequest,
    location: &'static Location<'static>,
    is_required: bool,
}

impl<'call> Expectation<'call> {
    pub(super) fn new(
        call: &'call Call,
        request: PreparedRequest,
        location: &'static Location<'static>,
        is_required: bool,
    ) -> Self {
        Self { call, request: SentRequest::new(request), location, is_required }
    }

    /// Answers with a response.
    pub fn respond(self, response: Response) {
        self.respond_with(move |_| response.clone());
    }

    /// Answers with a value as JSON, and the content type for it.
    ///
    /// # Panics
    ///
    /// If the value cannot be written as JSON.
    #[track_caller]
    pub fn respond_json(self, status: u16, value: &(impl Serialize + ?Sized)) {
        let body = serde_json::to_vec(value).unwrap_or_else(|error| panic!("the answer is no JSON: {error}"));
        self.respond(Response::new(status, [("content-type", "application/json")], body));
    }

    /// Answers with a response that depends on the request.
    pub fn respond_with(self, answer: impl Fn(&SentRequest) -> Response + 'static) {
        self.script(Rc::new(move |request| Ok(answer(request))));
    }

    /// Answers with a network error: the exchange is interrupted in `phase`. None is an unknown phase.
    pub fn fail(self, phase: impl Into<Option<NetworkPhase>>) {
        let error =
            Error::Network { phase: phase.into(), detail: "a test interrupted the exchange".to_owned() };
        self.script(Rc::new(move |_| Err(error.clone())));
    }

    fn script(self, answer: Answer) {
        let Self { call, request, location, is_required } = self;
        call.add(ScriptedAnswer { request, location, is_required, is_given: false, answer });
    }
}

pub(super) type Answer = Rc<dyn Fn(&SentRequest) -> Result<Response, Error>>;

/// An answer, and the request that it is for.
pub(super) struct ScriptedAnswer {
    request: SentRequest,
    location: &'static Location<'static>,
    /// True for `expect`: the answer is given exactly once.
    pub(super) is_required: bool,
    pub(super) is_given: bool,
    answer: Answer,
}

impl ScriptedAnswer {
    /// Gives the answer out.
    pub(super) fn take(&mut self) -> Answer {
        self.is_given = true;
        Rc::clone(&self.answer)
    }

    /// Returns the request line, and the line of the test that scripted the answer.
    pub(super) fn summary(&self) -> String {
        format!("{} {} ({})", self.request.method(), self.request.url(), self.location)
    }

    /// Returns the first difference of a request from the scripted one. None if this answer fits.
    pub(super) fn difference(&self, sent: &SentRequest) -> Option<String> {
        let scripted = &self.request;
        if sent.method() != scripted.method() {
            return Some(format!("the method is {}", sent.method()));
        }
        if !sent.has_path_of(scripted) {
            return Some("the URL is another".to_owned());
        }
        missing_query(scripted, sent)
            .or_else(|| other_header(scripted, sent))
            .or_else(|| other_body(scripted, sent))
    }
}

fn missing_query(scripted: &SentRequest, sent: &SentRequest) -> Option<String> {
    let mut there: Vec<_> = sent.query_pairs().collect();
    for pair in scripted.query_pairs() {
        match there.iter().position(|it| *it == pair) {
            Some(at) => drop(there.swap_remove(at)),
            None => return Some(format!("the query has no {}={}", pair.0, pair.1)),
        }
    }
    None
}

fn other_header(scripted: &SentRequest, sent: &SentRequest) -> Option<String> {
    // The length follows from the body, which is compared by itself.
    let named = scripted.headers().filter(|(name, _)| !name.eq_ignore_ascii_case("content-length"));
    for (name, value) in named {
        let there: Vec<_> = sent.headers().filter(|(key, _)| key.eq_ignore_ascii_case(name)).collect();
        if there.iter().any(|(_, other)| *other == value) {
            continue;
        }
        let value = String::from_utf8_lossy(value);
        return Some(match there.first() {
            None => format!("it has no header {name}: {value}"),
            Some((_, other)) => {
                format!("the header {name} is `{}`, not `{value}`", String::from_utf8_lossy(other))
            }
        });
    }
    None
}

fn other_body(scripted: &SentRequest, sent: &SentRequest) -> Option<String> {
    let is_same = match scripted.header("content-type") {
        _ if scripted.bytes().is_empty() || scripted.bytes() == sent.bytes() => true,
        Some("application/json") => {
            let value = |request: &SentRequest| request.json::<serde_json::Value>().ok();
            value(sent).is_some_and(|sent| Some(sent) == value(scripted))
        }
        Some("application/x-www-form-urlencoded") => {
            let pairs = |request: &SentRequest| {
                let mut pairs = request.form();
                pairs.sort();
                pairs
            };
            pairs(scripted) == pairs(sent)
        }
        _ => false,
    };
    (!is_same).then(|| format!("the body is not {}", scripted.text()))
}
