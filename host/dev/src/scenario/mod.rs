//! Scenarios: calls of a connector, the answers of its services, and what the caller has to see.
//!
//! The format is TOML; `docs/reference/scenarios.md` describes it, and is made from [`keys`].

mod keys;
mod parse;
mod pattern;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_core::failure::{FailureBoundary, FailureClass};
use cofferdam_egress::vault::Binding;
use cofferdam_model::manifest::{HostGrant, Manifest};
use cofferdam_model::package::Package;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value};

pub use parse::{SCENARIO_EXTENSIONS, parse_scenarios};
pub use pattern::Difference;
pub(crate) use pattern::{TextPattern, ValuePattern};

/// The connector that scenarios are about.
#[derive(Debug, Clone)]
pub struct TestedConnector {
    manifest: Manifest,
    operations: Vec<String>,
    unused_imports: Vec<String>,
}

impl TestedConnector {
    /// Returns what scenarios have to know about `package`.
    #[must_use]
    pub fn new(package: &Package) -> Self {
        let operations = package.operations().iter().map(|it| it.name().json().to_owned()).collect();
        let unused_imports = package.unused_imports().into_iter().map(ToOwned::to_owned).collect();
        Self { manifest: package.manifest().clone(), operations, unused_imports }
    }

    /// Returns its manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the names of its operations, in the component's order.
    #[must_use]
    pub fn operations(&self) -> &[String] {
        &self.operations
    }

    /// Returns the interfaces that the manifest names and the component does not import.
    pub(crate) fn unused_imports(&self) -> &[String] {
        &self.unused_imports
    }
}

/// The position of a part of a scenario.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// One scenario.
#[derive(Clone)]
pub struct Scenario {
    /// Its name, unique in its file.
    pub name: String,
    /// Its position.
    pub place: Place,
    /// True if the requests may come in any order.
    pub unordered: bool,
    /// The time of day at which it takes place.
    pub clock: Option<Timestamp>,
    /// The bound credentials.
    pub bindings: Vec<Binding>,
    /// The expected requests, with the answers.
    pub service: Vec<ServiceStep>,
    /// The calls, one after the other.
    pub calls: Vec<ScenarioCall>,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scenario")
            .field("name", &self.name)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// An expected request, and its answer.
#[derive(Debug, Clone)]
pub struct ServiceStep {
    /// Its position.
    pub place: Place,
    /// The request.
    pub request: RequestPattern,
    /// The answer.
    pub answer: Answer,
    /// The number of times that the request is expected.
    pub times: u32,
}

/// The pattern of a request.
#[derive(Debug, Clone)]
pub struct RequestPattern {
    /// The method.
    pub method: Method,
    /// The service.
    pub host: HostGrant,
    /// The path, as it is sent.
    pub path: TextPattern,
    /// The parameters of the query, decoded; `open_query` if there may be others.
    pub query: Vec<(String, Vec<TextPattern>)>,
    /// True if other parameters are allowed.
    pub open_query: bool,
    /// The header fields that are compared.
    pub headers: Vec<(HeaderName, TextPattern)>,
    /// The body, if it is compared.
    pub body: Option<BodyPattern>,
}

/// The pattern of a request's body.
#[derive(Debug, Clone)]
pub enum BodyPattern {
    /// JSON.
    Json(ValuePattern),
    /// A form (`application/x-www-form-urlencoded`), as an object of texts; a repeated name has a list.
    Form(ValuePattern),
    /// A text.
    Text(TextPattern),
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A response.
    Response(ScriptedResponse),
    /// A fault.
    Fault(Fault),
}

/// A response.
#[derive(Debug, Clone)]
pub struct ScriptedResponse {
    /// The status.
    pub status: StatusCode,
    /// The header fields, without those that frame the message.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Arc<[u8]>,
}

/// A fault of a service.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing listens.
    Refuse,
    /// The connection is reset after so many bytes of the response's body; before the response if there is none.
    Reset(Option<(ScriptedResponse, usize)>),
    /// The response's body comes this slowly.
    Drip { response: ScriptedResponse, bytes_per_second: u64 },
    /// There is no response, as long as the caller waits.
    Timeout,
    /// The response is not HTTP.
    Malformed,
    /// The server's certificate is not valid.
    Tls(CertificateFault),
}

/// The fault of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateFault {
    /// Its issuer is not trusted.
    UnknownIssuer,
    /// It has expired.
    Expired,
    /// It is for another name.
    WrongHost,
}

/// A call.
#[derive(Debug, Clone)]
pub struct ScenarioCall {
    /// Its position.
    pub place: Place,
    /// The operation, under its caller's name.
    pub operation: String,
    /// The arguments.
    pub args: Map<String, Value>,
    /// The idempotency key.
    pub key: Option<String>,
    /// The identity for each service.
    pub identities: BTreeMap<String, String>,
    /// The expectation of its caller.
    pub expect: Expectation,
}

/// The expectation of a call's caller.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// The outcome.
    pub outcome: ExpectedOutcome,
    /// The number of attempts.
    pub attempts: Option<u32>,
}

/// The expected outcome of a call.
#[derive(Debug, Clone)]
pub enum ExpectedOutcome {
    /// A value.
    Value(ValuePattern),
    /// A failure.
    Failure(FailurePattern),
    /// An error of the host.
    Error(ErrorPattern),
}

/// The pattern of a failure; what is not given is not compared.
#[derive(Debug, Clone, Default)]
pub struct FailurePattern {
    /// The class.
    pub class: Option<FailureClass>,
    /// The code.
    pub code: Option<TextPattern>,
    /// The boundary.
    pub boundary: Option<FailureBoundary>,
    /// The message.
    pub message: Option<TextPattern>,
    /// The retriable flag.
    pub retriable: Option<bool>,
    /// The details; others are allowed.
    pub details: Vec<(String, ValuePattern)>,
}

/// The pattern of an error of the host.
#[derive(Debug, Clone, Default)]
pub struct ErrorPattern {
    /// The code.
    pub code: Option<TextPattern>,
    /// The message.
    pub message: Option<TextPattern>,
}
