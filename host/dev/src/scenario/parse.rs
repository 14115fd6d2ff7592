//! Reads scenario files. Every problem has its line and a fix.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cofferdam_core::document::{
    DocumentError, DocumentTable, InvalidValue, SpannedItem, SpannedValue, quoted, read, read_yaml,
};
use cofferdam_core::failure::{FailureBoundary, FailureClass};
use cofferdam_core::suggest;
use cofferdam_egress::vault::Binding;
use cofferdam_model::manifest::{HostGrant, UrlScheme};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;

use super::keys::{self, FaultKind};
use super::pattern::{REST, TextPattern, ValuePattern, literal};
use super::{
    Answer, BodyPattern, CertificateFault, ErrorPattern, Expectation, ExpectedOutcome, FailurePattern, Fault,
    Place, RequestPattern, Scenario, ScenarioCall, ScriptedResponse, ServiceStep, TestedConnector,
};
use crate::bindings::{made_up_binding, test_binding};

/// The longest body that a scenario takes from a file, in bytes.
const BODY_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The most times that one request is expected.
const MAX_TIMES: u64 = 10_000;

/// The longest name of a scenario, in characters.
const NAME_CHARS: usize = 200;

/// The endings of scenario files.
pub const SCENARIO_EXTENSIONS: [&str; 3] = ["toml", "yaml", "yml"];

/// Parses the scenario file `text`, which problems call `label`: YAML if that ends so, otherwise TOML. `dir` is the
/// directory of the files that it names.
///
/// # Errors
/// Every problem of the file at once, each with its line and a fix.
pub fn parse_scenarios(
    label: &str,
    text: &str,
    dir: &Path,
    connector: &TestedConnector,
) -> Result<Vec<Scenario>, DocumentError> {
    let parser = Parser { file: label.into(), dir, connector };
    match Path::new(label).extension().and_then(|extension| extension.to_str()) {
        Some("yaml" | "yml") => read_yaml(label, text, |root| parser.file(root)),
        _ => read(label, text, |root| parser.file(root)),
    }
}

struct Parser<'p> {
    file: Arc<str>,
    dir: &'p Path,
    connector: &'p TestedConnector,
}

impl Parser<'_> {
    fn file(&self, root: &DocumentTable<'_>) -> Option<Vec<Scenario>> {
        root.reject_unknown_keys(&keys::FILE.names());
        if !root.has("scenario") {
            root.missing(
                "scenario",
                "a table [[scenario]] with a name, a [[scenario.call]] and what it expects",
            );
        }
        let tables = root.tables("scenario");
        let mut names = BTreeMap::new();
        for table in &tables {
            let Some(name) = table.text("name") else { continue };
            if let Some(line) = names.insert(name.value, name.line()) {
                let message = format!("another scenario has this name, at line {line}");
                name.refuse(InvalidValue::new(message, "give each scenario of a file its own"));
            }
        }
        let scenarios: Vec<_> = tables.iter().map(|table| self.scenario(table)).collect();
        scenarios.into_iter().collect()
    }

    fn place(&self, table: &DocumentTable<'_>) -> Place {
        Place { file: Arc::clone(&self.file), line: table.location().line() }
    }

    fn scenario(&self, table: &DocumentTable<'_>) -> Option<Scenario> {
        table.reject_unknown_keys(&keys::SCENARIO.names());
        let name = table.required_text("name", "name = \"an issue is created once\"");
        let name = name.and_then(|name| name.parse(|name| scenario_name(name)));
        let unordered = table.flag("unordered").unwrap_or(false);
        let clock = table.moment("clock").map(|moment| moment.value);
        let bindings = self.bindings(table);
        let service: Vec<_> = table.tables("service").iter().map(|step| self.step(step, unordered)).collect();
        if !table.has("call") {
            table.missing(
                "call",
                "a table [[scenario.call]] with an operation: a service alone shows nothing",
            );
        }
        let calls: Vec<_> = table.tables("call").iter().map(|call| self.call(call)).collect();
        Some(Scenario {
            name: name?,
            place: self.place(table),
            unordered,
            clock,
            bindings: bindings?,
            service: service.into_iter().collect::<Option<_>>()?,
            calls: calls.into_iter().collect::<Option<_>>()?,
        })
    }

    /// Binds what the scenario names, and makes up the rest.
    fn bindings(&self, table: &DocumentTable<'_>) -> Option<Vec<Binding>> {
        let manifest = self.connector.manifest();
        let (mut bindings, mut named) = (Vec::new(), Vec::new());
        if table.has("bind") {
            let SpannedValue::Table(_, entries) = table.node("bind")? else {
                table.location_of("bind")?.refuse(InvalidValue::new(
                    "this is not a table",
                    "write it like bind = { \"bearer/tickets\" = \"a test token\" }",
                ));
                return None;
            };
            for (name, secret) in &entries {
                let (kind_and_service, identity) = split_binding(name.value);
                let grant = manifest.credentials().iter().find(|grant| grant.label() == kind_and_service);
                let Some(grant) = grant else {
                    name.refuse(self.no_such_credential(name.value));
                    return None;
                };
                named.push((grant.label(), identity.to_owned()));
                match secret {
                    SpannedValue::Text(text) => {
                        let binding =
                            text.parse(|text| test_binding(grant, manifest.name(), identity, text))?;
                        bindings.push(binding);
                    }
                    SpannedValue::Plain(plain) if plain.value == Value::Bool(false) => {}
                    other => {
                        other.location().refuse(InvalidValue::new(
                            "this is not a secret",
                            "write a text, or false if nothing is bound",
                        ));
                        return None;
                    }
                }
            }
        }
        for grant in manifest.credentials() {
            if !named.iter().any(|(label, _)| *label == grant.label()) {
                bindings.extend(made_up_binding(grant, manifest.name()));
            }
        }
        Some(bindings)
    }

    fn no_such_credential(&self, name: &str) -> InvalidValue {
        let labels: Vec<_> =
            self.connector.manifest().credentials().iter().map(|grant| grant.label()).collect();
        let message = format!("the manifest asks for no credential {}", quoted(name));
        let near = suggest::nearest(name, labels.iter().map(String::as_str));
        let fix = match (near, labels.is_empty()) {
            (Some(near), _) => format!("did you mean \"{near}\"?"),
            (None, true) => "remove it, or add a [[capabilities.credential]] to connector.toml".to_owned(),
            (None, false) => format!("it asks for: {}", labels.join(", ")),
        };
        InvalidValue::new(message, fix)
    }

    fn step(&self, table: &DocumentTable<'_>, unordered: bool) -> Option<ServiceStep> {
        table.reject_unknown_keys(&keys::SERVICE.names());
        if !table.has("request") {
            table.missing("request", "request = { method = \"GET\", url = \"https://..\" }");
        }
        let request = table.table("request").and_then(|request| self.request(&request));
        let response = match table.table("response") {
            Some(response) => self.response(&response).map(Some),
            None => Some(None),
        };
        let answer = match table.table("fault") {
            Some(fault) => response.and_then(|response| fault_of(&fault, response)).map(Answer::Fault),
            None => response.map(|response| Answer::Response(response.unwrap_or_else(empty_response))),
        };
        if let Some(Answer::Fault(Fault::Refuse | Fault::Tls(_))) = answer
            && unordered
            && let Some(fault) = table.location_of("fault")
        {
            fault.refuse(InvalidValue::new(
                "this fault comes before the request can be read, and here requests come in any order",
                "write unordered = false, and put the steps in their order",
            ));
        }
        let times = match table.integer("times") {
            Some(times) if (1..=MAX_TIMES).contains(&times.value) => u32::try_from(times.value).ok(),
            Some(times) => {
                let fix = format!("write a number from 1 to {MAX_TIMES}, or remove the step");
                times.refuse(InvalidValue::new("no request comes so often", fix));
                None
            }
            None => Some(1),
        };
        Some(ServiceStep { place: self.place(table), request: request?, answer: answer?, times: times? })
    }

    fn request(&self, table: &DocumentTable<'_>) -> Option<RequestPattern> {
        table.reject_unknown_keys(&keys::REQUEST.names());
        let method = table.required_text("method", "method = \"GET\"");
        let method = method.and_then(|method| method.parse(|method| method_of(method)));
        let url = table.required_text("url", "url = \"https://api.tickets.example/v1/issues\"");
        let url = url.and_then(|url| Some((self.url(&url)?, url)));
        let query = table.node("query").map(|query| fields(&query));
        let headers = match table.node("headers") {
            Some(headers) => header_patterns(&headers),
            None => Some(Vec::new()),
        };
        let bodies: Vec<_> = ["json", "form", "body"].into_iter().filter(|key| table.has(key)).collect();
        if let [_, second, ..] = bodies.as_slice()
            && let Some(location) = table.location_of(second)
        {
            location.refuse(InvalidValue::new("a request has one body", "keep one of json, form and body"));
        }
        let body = match bodies.first() {
            None => Some(None),
            Some(&"json") => {
                let json = table.node("json").and_then(|json| ValuePattern::read(&json));
                json.map(|json| Some(BodyPattern::Json(json)))
            }
            Some(&"form") => {
                let form = table.node("form").and_then(|form| match form {
                    SpannedValue::Table(..) => ValuePattern::read(&form),
                    other => {
                        let fix = "write it like form = { amount = \"5\" }";
                        other.location().refuse(InvalidValue::new("a form has fields", fix));
                        None
                    }
                });
                form.map(|form| Some(BodyPattern::Form(form)))
            }
            Some(_) => {
                let text = table.text("body")?.parse(|text| TextPattern::parse(text));
                text.map(|text| Some(BodyPattern::Text(text)))
            }
        };
        let ((host, path, of_url), url) = url?;
        let (query, open_query) = match query {
            Some(query) if !of_url.is_empty() => {
                url.refuse(InvalidValue::new(
                    "the URL has a query, and there is a table `query`",
                    "keep one",
                ));
                query?
            }
            Some(query) => query?,
            None => (of_url, false),
        };
        Some(RequestPattern {
            method: method?,
            host,
            path,
            query,
            open_query,
            headers: headers?,
            body: body?,
        })
    }

    /// Reads a URL: a service that the manifest grants, a pattern of its path, and the query.
    #[expect(clippy::type_complexity, reason = "three parts of one text")]
    fn url(
        &self,
        url: &SpannedItem<'_, &str>,
    ) -> Option<(HostGrant, TextPattern, Vec<(String, Vec<TextPattern>)>)> {
        let (scheme, rest) = match url.value.split_once("://") {
            Some(("https", rest)) => (UrlScheme::Https, rest),
            Some(("http", rest)) => (UrlScheme::Http, rest),
            _ => {
                let message = format!("{} is not an http or https URL", quoted(url.value));
                let fix = "write it like \"https://api.tickets.example/v1/issues\"";
                url.refuse(InvalidValue::new(message, fix));
                return None;
            }
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (default_port, prefix) = match scheme {
            UrlScheme::Https => (443, ""),
            UrlScheme::Http => (80, "http://"),
        };
        let port = if authority.contains(':') { String::new() } else { format!(":{default_port}") };
        let host = url.parse(|_| HostGrant::parse(&format!("{prefix}{authority}{port}")))?;
        let granted = self.connector.manifest().hosts();
        if !granted.contains(&host) {
            let granted: Vec<_> = granted.iter().map(ToString::to_string).collect();
            let message = match granted.is_empty() {
                true => format!("the manifest grants no host, and so not \"{host}\""),
                false => format!("the manifest does not grant \"{host}\", but {}", granted.join(", ")),
            };
            let fix = format!("correct the URL, or add \"{host}\" to the hosts in connector.toml");
            url.refuse(InvalidValue::new(message, fix));
            return None;
        }
        if path.contains('#') {
            url.refuse(InvalidValue::new("a request has no fragment", "remove the # and what follows"));
            return None;
        }
        let (path, query) = split_query(path);
        let path = if path.is_empty() { "/" } else { path };
        let path = url.parse(|_| TextPattern::parse(path))?;
        let mut parameters: Vec<(String, Vec<TextPattern>)> = Vec::new();
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let value = url.parse(|_| TextPattern::parse(&value))?;
            match parameters.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => parameters.push((name.into_owned(), vec![value])),
            }
        }
        Some((host, path, parameters))
    }

    fn response(&self, table: &DocumentTable<'_>) -> Option<ScriptedResponse> {
        table.reject_unknown_keys(&keys::RESPONSE.names());
        let status = match table.integer("status") {
            None => Some(StatusCode::OK),
            Some(status) => status.parse(|status| {
                let code = u16::try_from(*status).ok().and_then(|code| StatusCode::from_u16(code).ok());
                code.filter(|code| (200..600).contains(&code.as_u16())).ok_or_else(|| {
                    InvalidValue::new(format!("{status} is not the status of a response"), "write 200 to 599")
                })
            }),
        };
        let headers = match table.node("headers") {
            Some(headers) => header_values(&headers),
            None => Some(Vec::new()),
        };
        let bodies: Vec<_> = ["json", "body", "body_file"].into_iter().filter(|key| table.has(key)).collect();
        if let [_, second, ..] = bodies.as_slice()
            && let Some(location) = table.location_of(second)
        {
            location
                .refuse(InvalidValue::new("a response has one body", "keep one of json, body and body_file"));
        }
        let body: Option<Arc<[u8]>> = match bodies.first() {
            None => Some(Arc::default()),
            Some(&"json") => {
                let json = table.node("json").and_then(|json| literal(&json));
                json.map(|json| json.to_string().into_bytes().into())
            }
            Some(&"body") => table.text("body").map(|text| text.value.as_bytes().into()),
            Some(_) => {
                let file = table.text("body_file");
                file.and_then(|file| file.parse(|file| body_file(self.dir, file))).map(Into::into)
            }
        };
        let mut headers = headers?;
        if bodies.first() == Some(&"json") && !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
            headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
        }
        Some(ScriptedResponse { status: status?, headers, body: body? })
    }

    fn call(&self, table: &DocumentTable<'_>) -> Option<ScenarioCall> {
        table.reject_unknown_keys(&keys::CALL.names());
        let operation = table.required_text("operation", "operation = \"create_issue\"");
        let operation = operation.and_then(|name| name.parse(|name| self.operation(name)));
        let args = match table.node("args") {
            None => Some(serde_json::Map::new()),
            Some(args) => match literal(&args) {
                Some(Value::Object(args)) => Some(args),
                Some(_) => {
                    let fix = "write it like args = { title = \"Broken\" }";
                    args.location().refuse(InvalidValue::new("arguments are a table", fix));
                    None
                }
                None => None,
            },
        };
        let key = table.text("key").map(|key| key.value.to_owned());
        let mut identities = BTreeMap::new();
        for (service, identity) in table.table("identity").iter().flat_map(DocumentTable::each_text) {
            identities.insert(service.value.to_owned(), identity.value.to_owned());
        }
        let expect = match table.table("expect") {
            Some(expect) => expectation(&expect),
            None => Some(Expectation { outcome: ExpectedOutcome::Value(ValuePattern::Any), attempts: None }),
        };
        Some(ScenarioCall {
            place: self.place(table),
            operation: operation?,
            args: args?,
            key,
            identities,
            expect: expect?,
        })
    }

    fn operation(&self, name: &str) -> Result<String, InvalidValue> {
        let operations = self.connector.operations();
        let snake = name.replace('-', "_");
        if let Some(known) = operations.iter().find(|known| *known == name || **known == snake) {
            return Ok(known.clone());
        }
        let list = operations.join(", ");
        let fix = match suggest::nearest(name, operations.iter().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`? (it has: {list})"),
            None => format!("it has: {list}"),
        };
        Err(InvalidValue::new(format!("the connector has no operation {}", quoted(name)), fix))
    }
}

fn scenario_name(name: &str) -> Result<String, InvalidValue> {
    let is_line = !name.trim().is_empty() && !name.chars().any(char::is_control);
    match is_line && name.chars().count() <= NAME_CHARS {
        true => Ok(name.to_owned()),
        false => Err(InvalidValue::new(
            "this is not a name",
            format!("write one line of up to {NAME_CHARS} characters"),
        )),
    }
}

/// Returns `kind/service`, and the identity.
fn split_binding(name: &str) -> (&str, &str) {
    match name.match_indices('/').nth(1) {
        Some((at, _)) => (name.get(..at).unwrap_or(name), name.get(at + 1..).unwrap_or_default()),
        None => (name, cofferdam_egress::vault::DEFAULT_IDENTITY),
    }
}

/// Splits a path at its `?`, which may be a part of a placeholder.
fn split_query(path: &str) -> (&str, Option<&str>) {
    let (mut depth, mut before) = (0_usize, ' ');
    for (at, letter) in path.char_indices() {
        match (before, letter) {
            ('{', '{') => depth += 1,
            ('}', '}') => depth = depth.saturating_sub(1),
            (_, '?') if depth == 0 => return (path.get(..at).unwrap_or(path), path.get(at + 1..)),
            _ => {}
        }
        before = letter;
    }
    (path, None)
}

fn method_of(text: &str) -> Result<Method, InvalidValue> {
    let method = Method::from_bytes(text.as_bytes()).ok().filter(|_| text == text.to_ascii_uppercase());
    method.ok_or_else(|| {
        let message = format!("{} is not a method", quoted(text));
        InvalidValue::new(
            message,
            format!("write it in upper case, like {}", quoted(&text.to_ascii_uppercase())),
        )
    })
}

/// The parameters of a query by name, and whether others are allowed.
type QueryPatterns = (Vec<(String, Vec<TextPattern>)>, bool);

/// Reads the parameters of a query, and whether others are allowed.
fn fields(value: &SpannedValue<'_>) -> Option<QueryPatterns> {
    let SpannedValue::Table(_, entries) = value else {
        let fix = "write it like query = { state = \"open\" }";
        value.location().refuse(InvalidValue::new("this is not a table", fix));
        return None;
    };
    let open = entries.iter().any(|(name, _)| name.value == REST);
    let fields = entries.iter().filter(|(name, _)| name.value != REST).map(|(name, value)| {
        let values = match value {
            SpannedValue::List(_, items) => items.iter().map(text_pattern).collect::<Option<_>>()?,
            one => vec![text_pattern(one)?],
        };
        Some((name.value.to_owned(), values))
    });
    let fields: Vec<_> = fields.collect();
    Some((fields.into_iter().collect::<Option<_>>()?, open))
}

/// Reads a text, or a number or truth value, which is compared as text.
fn text_pattern(value: &SpannedValue<'_>) -> Option<TextPattern> {
    match value {
        SpannedValue::Text(text) => text.parse(|text| TextPattern::parse(text)),
        SpannedValue::Plain(plain) => Some(TextPattern::literal(&plain.value.to_string())),
        other => {
            other.location().refuse(InvalidValue::new("this is not a text", "write it in double quotes"));
            None
        }
    }
}

fn header_patterns(value: &SpannedValue<'_>) -> Option<Vec<(HeaderName, TextPattern)>> {
    headers(value, |_, value| text_pattern(value))
}

fn header_values(value: &SpannedValue<'_>) -> Option<Vec<(HeaderName, HeaderValue)>> {
    headers(value, |name, value| {
        if [CONTENT_LENGTH, CONNECTION, TRANSFER_ENCODING].contains(name) {
            let message = format!("{name} frames the response, which is done here already");
            value.location().refuse(InvalidValue::new(message, "remove it"));
            return None;
        }
        let text = match value {
            SpannedValue::Text(text) => text.value.to_owned(),
            SpannedValue::Plain(plain) => plain.value.to_string(),
            other => {
                other.location().refuse(InvalidValue::new("this is not a text", "write it in double quotes"));
                return None;
            }
        };
        let parsed = HeaderValue::from_str(&text).ok();
        if parsed.is_none() {
            let fix = "write it without line breaks and control characters";
            value.location().refuse(InvalidValue::new("this is not the value of a header field", fix));
        }
        parsed
    })
}

fn headers<T>(
    value: &SpannedValue<'_>,
    each: impl Fn(&HeaderName, &SpannedValue<'_>) -> Option<T>,
) -> Option<Vec<(HeaderName, T)>> {
    let SpannedValue::Table(_, entries) = value else {
        let fix = "write it like headers = { accept = \"application/json\" }";
        value.location().refuse(InvalidValue::new("this is not a table", fix));
        return None;
    };
    let mut headers = Vec::new();
    for (name, value) in entries {
        let parsed = name.parse(|name| {
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
                InvalidValue::new(format!("{} is not the name of a header field", quoted(name)), "correct it")
            })
        });
        let Some(header) = parsed else { continue };
        match value {
            // A field that is there several times.
            SpannedValue::List(_, items) => {
                for item in items {
                    headers.push((header.clone(), each(&header, item)?));
                }
            }
            one => headers.push((header.clone(), each(&header, one)?)),
        }
    }
    Some(headers)
}

fn empty_response() -> ScriptedResponse {
    ScriptedResponse { status: StatusCode::OK, headers: Vec::new(), body: Arc::default() }
}

fn fault_of(table: &DocumentTable<'_>, response: Option<ScriptedResponse>) -> Option<Fault> {
    table.reject_unknown_keys(&keys::FAULT.names());
    let kind = table.required_text("kind", "kind = \"reset\"")?.parse(|name| {
        let known = FaultKind::ALL.into_iter().find(|kind| kind.name() == *name);
        known.ok_or_else(|| {
            let names = FaultKind::ALL.map(FaultKind::name);
            let near = suggest::nearest(name, names).map(|near| format!("did you mean \"{near}\"? "));
            let fix = format!("{}write one of {}", near.unwrap_or_default(), names.join(", "));
            InvalidValue::new(format!("{} is not a fault", quoted(name)), fix)
        })
    })?;
    let own = match kind {
        FaultKind::Reset => Some("after_bytes"),
        FaultKind::Drip => Some("bytes_per_second"),
        FaultKind::Tls => Some("certificate"),
        FaultKind::Refuse | FaultKind::Timeout | FaultKind::Malformed => None,
    };
    for key in ["after_bytes", "bytes_per_second", "certificate"] {
        if own != Some(key)
            && let Some(location) = table.location_of(key)
        {
            let message = format!("a fault of the kind {} has no {key}", kind.name());
            location.refuse(InvalidValue::new(message, "remove it"));
        }
    }
    if response.is_some() && !kind.has_response() {
        let message = format!("with the fault {} there is no response", kind.name());
        table.location().refuse(InvalidValue::new(message, "remove the response, or the fault"));
        return None;
    }
    Some(match kind {
        FaultKind::Refuse => Fault::Refuse,
        FaultKind::Timeout => Fault::Timeout,
        FaultKind::Malformed => Fault::Malformed,
        FaultKind::Reset => Fault::Reset(reset(table, response)?),
        FaultKind::Drip => {
            let Some(response) = response else {
                table.location().refuse(InvalidValue::new("what drips is a response", "add a response"));
                return None;
            };
            if !table.has("bytes_per_second") {
                table.missing("bytes_per_second", "bytes_per_second = 10");
            }
            let speed = table.integer("bytes_per_second")?;
            let bytes_per_second = speed.parse(|speed| match speed {
                0 => Err(InvalidValue::new("this is no speed", "write a number above 0, or another fault")),
                speed => Ok(*speed),
            })?;
            Fault::Drip { response, bytes_per_second }
        }
        FaultKind::Tls => Fault::Tls(match table.text("certificate") {
            None => CertificateFault::UnknownIssuer,
            Some(word) => word.parse(|word| match *word {
                "unknown_issuer" => Ok(CertificateFault::UnknownIssuer),
                "expired" => Ok(CertificateFault::Expired),
                "wrong_host" => Ok(CertificateFault::WrongHost),
                other => Err(InvalidValue::new(
                    format!("{} is not a fault of a certificate", quoted(other)),
                    "write \"unknown_issuer\", \"expired\" or \"wrong_host\"",
                )),
            })?,
        }),
    })
}

/// Returns the response before a reset, and the part of it that arrives.
fn reset(
    table: &DocumentTable<'_>,
    response: Option<ScriptedResponse>,
) -> Option<Option<(ScriptedResponse, usize)>> {
    let after = table.integer("after_bytes");
    let Some(response) = response else {
        if let Some(after) = after.filter(|after| after.value > 0) {
            after.refuse(InvalidValue::new(
                "there is no response of which so much could arrive",
                "add a response",
            ));
            return None;
        }
        return Some(None);
    };
    let Some(after) = after else {
        table.missing("after_bytes", "after_bytes = 10, the part of the response's body that arrives");
        return None;
    };
    let length = response.body.len();
    let bytes = after.parse(|after| match usize::try_from(*after) {
        Ok(bytes) if bytes < length => Ok(bytes),
        _ => {
            let message = format!("the response's body has {length} bytes, and then it is complete");
            Err(InvalidValue::new(message, "write a smaller number"))
        }
    })?;
    Some(Some((response, bytes)))
}

fn body_file(dir: &Path, file: &str) -> Result<Vec<u8>, InvalidValue> {
    use std::io::Read as _;

    let path = dir.join(file);
    let wrong = |why: &dyn std::fmt::Display| {
        InvalidValue::new(format!("{} cannot be read: {why}", quoted(file)), "name a file beside this one")
    };
    let opened = std::fs::File::open(&path).map_err(|error| wrong(&error))?;
    let mut bytes = Vec::new();
    opened.take(BODY_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| wrong(&error))?;
    match bytes.len() as u64 > BODY_FILE_BYTES {
        true => Err(wrong(&"it has more than 16 MiB")),
        false => Ok(bytes),
    }
}

fn expectation(table: &DocumentTable<'_>) -> Option<Expectation> {
    table.reject_unknown_keys(&keys::EXPECT.names());
    let given: Vec<_> = ["value", "failure", "error"].into_iter().filter(|key| table.has(key)).collect();
    if let [_, second, ..] = given.as_slice()
        && let Some(location) = table.location_of(second)
    {
        let fix = "keep one of value, failure and error";
        location.refuse(InvalidValue::new("a call has one outcome", fix));
    }
    let outcome = match given.first() {
        None => Some(ExpectedOutcome::Value(ValuePattern::Any)),
        Some(&"value") => {
            let value = table.node("value").and_then(|value| ValuePattern::read(&value));
            value.map(ExpectedOutcome::Value)
        }
        Some(&"failure") => table.table("failure").and_then(|it| failure(&it)).map(ExpectedOutcome::Failure),
        Some(_) => table.table("error").and_then(|it| error(&it)).map(ExpectedOutcome::Error),
    };
    let attempts = match table.integer("attempts") {
        None => Some(None),
        Some(attempts) => attempts
            .parse(|attempts| {
                let number = u32::try_from(*attempts).ok().filter(|number| *number <= 100);
                number
                    .ok_or_else(|| InvalidValue::new("no call has so many attempts", "write a small number"))
            })
            .map(Some),
    };
    Some(Expectation { outcome: outcome?, attempts: attempts? })
}

fn failure(table: &DocumentTable<'_>) -> Option<FailurePattern> {
    table.reject_unknown_keys(&keys::FAILURE.names());
    let text = |key| match table.text(key) {
        None => Some(None),
        Some(text) => text.parse(|text| TextPattern::parse(text)).map(Some),
    };
    let word = |key: &str, names: &[&'static str]| match table.text(key) {
        None => Some(None),
        Some(word) => word
            .parse(|word| {
                let at = names.iter().position(|name| name == word);
                at.ok_or_else(|| {
                    let near = suggest::nearest(word, names.iter().copied());
                    let near = near.map(|near| format!("did you mean \"{near}\"? ")).unwrap_or_default();
                    let message = format!("{} is not a {key}", quoted(word));
                    InvalidValue::new(message, format!("{near}write one of {}", names.join(", ")))
                })
            })
            .map(Some),
    };
    let classes: Vec<_> = FailureClass::ALL.iter().map(|class| class.name()).collect();
    let class = word("class", &classes);
    let boundary = word("boundary", &FailureBoundary::ALL.map(FailureBoundary::name));
    let (code, message) = (text("code"), text("message"));
    let details = match table.node("details") {
        None => Some(Vec::new()),
        Some(details) => match ValuePattern::read(&details) {
            Some(ValuePattern::Object { fields, .. }) => Some(fields),
            Some(_) => {
                let fix = "write it like details = { status = 503 }";
                details.location().refuse(InvalidValue::new("details are a table", fix));
                None
            }
            None => None,
        },
    };
    Some(FailurePattern {
        class: class?.and_then(|at| FailureClass::ALL.get(at).copied()),
        code: code?,
        boundary: boundary?.and_then(|at| FailureBoundary::ALL.get(at).copied()),
        message: message?,
        retriable: table.flag("retriable"),
        details: details?,
    })
}

fn error(table: &DocumentTable<'_>) -> Option<ErrorPattern> {
    table.reject_unknown_keys(&keys::ERROR.names());
    let text = |key| match table.text(key) {
        None => Some(None),
        Some(text) => text.parse(|text| TextPattern::parse(text)).map(Some),
    };
    let (code, message) = (text("code"), text("message"));
    Some(ErrorPattern { code: code?, message: message? })
}
