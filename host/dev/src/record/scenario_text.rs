//! Writes a recording as a scenario file.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::secret::{Scanner, is_personal_field, is_personal_parameter};
use cofferdam_model::manifest::{CredentialPlacement, Manifest};
use serde_json::{Map, Value};

use super::relay::Exchange;
use super::scrub::{COMPARED, SENT, is_secret};
use super::{RecordedCall, RecordedFile};
use crate::service::url_of;

/// The longest value on one line, in bytes.
const LINE_BYTES: usize = 90;

/// The deepest value that is written as TOML; a deeper one is written as text. A document's own bound is 16.
const MAX_DEPTH: usize = 9;

/// Header fields of requests that the host writes, or that frame the message.
const HOSTS_OWN: [&str; 6] =
    ["host", "content-length", "connection", "accept-encoding", "transfer-encoding", "user-agent"];

/// Header fields of responses that say nothing to a connector.
const IRRELEVANT: [&str; 2] = ["date", "server"];

/// A scenario that was recorded, cleaned and checked.
#[derive(Debug, Clone)]
pub struct RecordedScenario {
    text: String,
    files: Vec<RecordedFile>,
}

impl RecordedScenario {
    /// Returns the text of the scenario file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the files with bodies that are not text.
    #[must_use]
    pub fn files(&self) -> &[RecordedFile] {
        &self.files
    }
}

/// The values of a file, in the making.
struct Writer<'w> {
    scanner: &'w Scanner,
    /// The keys of the calls.
    keys: Vec<&'w str>,
    stem: &'w str,
    files: Vec<RecordedFile>,
}

/// Returns the scenario, or the reason why there is none.
pub(super) fn compose(
    name: &str,
    stem: &str,
    manifest: &Manifest,
    exchanges: &[Exchange],
    calls: &[RecordedCall],
    scanner: &Scanner,
) -> Result<RecordedScenario, HostError> {
    let keys = calls.iter().map(|call| call.key.as_str()).collect();
    let mut writer = Writer { scanner, keys, stem, files: Vec::new() };
    let mut text = "# Recorded from a real service. Secrets and personal header fields are replaced; look through the rest.\n"
        .to_owned();
    // Writing to a string cannot fail.
    let _ = write!(text, "[[scenario]]\nname = {}\n", quoted(name));
    for exchange in exchanges {
        text += "\n[[scenario.service]]\n";
        writer.request(&mut text, exchange, manifest);
        writer.response(&mut text, exchange);
    }
    for call in calls {
        writer.call(&mut text, call)?;
    }
    let Writer { files, .. } = writer;
    // What is left after the replacements must not be written: a path, a name of a field, a binary body.
    let everything = files.iter().map(|file| file.bytes.as_slice()).chain([text.as_bytes()]);
    if let Some(found) = everything.filter_map(|bytes| scanner.find(bytes)).next() {
        let message =
            format!("The recording has the secret of {} in it, and was not written.", found.binding);
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(
            "Record an operation of the service that does not repeat it, or write the scenario by hand.",
        ));
    }
    Ok(RecordedScenario { text, files })
}

impl Writer<'_> {
    fn request(&self, text: &mut String, exchange: &Exchange, manifest: &Manifest) {
        let Exchange { host, request, .. } = exchange;
        let grants = || manifest.credentials().iter().filter(|grant| grant.hosts().contains(host));
        // A path that is replaced still begins as one.
        let path = format!("/{}", self.compared(request.path().strip_prefix('/').unwrap_or_default()));
        let mut fields =
            vec![("method", quoted(&request.method)), ("url", quoted(&format!("{}{path}", url_of(host))))];
        let mut query: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(request.query().as_bytes()) {
            let is_credential = grants().any(|grant| {
                matches!(grant.placement(), CredentialPlacement::Query { name: own } if own.eq_ignore_ascii_case(&name))
            });
            if !is_credential {
                let value = self.compared_named(&value, is_personal_parameter(&name));
                query.entry(name.into_owned()).or_default().push(value.into());
            }
        }
        if !query.is_empty() {
            fields.push(("query", inline(&one_or_list(query), 1)));
        }
        let mut headers: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (name, value) in &request.headers {
            let name = name.as_str();
            if HOSTS_OWN.contains(&name) {
                continue;
            }
            let is_written =
                grants().any(|grant| grant.placement().headers().iter().any(|own| own.as_str() == name));
            let value = String::from_utf8_lossy(value.as_bytes());
            let value = self.compared_named(&value, is_written || is_personal_field(name));
            headers.entry(name.to_owned()).or_default().push(value.into());
        }
        if !headers.is_empty() {
            fields.push(("headers", inline(&one_or_list(headers), 1)));
        }
        fields.extend(self.request_body(exchange));
        table(text, "request", &fields);
    }

    fn request_body(&self, exchange: &Exchange) -> Option<(&'static str, String)> {
        let request = &exchange.request;
        let kind = request.headers.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if request.body.is_empty() {
            return None;
        }
        if kind.is_some_and(|kind| kind.starts_with("application/x-www-form-urlencoded")) {
            let mut form: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for (name, value) in url::form_urlencoded::parse(&request.body) {
                let value = self.compared_named(&value, is_personal_parameter(&name));
                form.entry(name.into_owned()).or_default().push(value.into());
            }
            return Some(("form", inline(&one_or_list(form), 1)));
        }
        if let Ok(mut json) = serde_json::from_slice::<Value>(&request.body)
            && fits(&json)
        {
            self.compare_json(&mut json);
            return Some(("json", inline(&json, 1)));
        }
        // Bytes are not compared.
        let text = std::str::from_utf8(&request.body).ok()?;
        Some(("body", quoted(&self.compared(text))))
    }

    fn response(&mut self, text: &mut String, exchange: &Exchange) {
        let response = &exchange.response;
        let mut fields = vec![("status", response.status.as_u16().to_string())];
        let mut headers: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (name, value) in &response.headers {
            let (name, value) = (name.as_str(), String::from_utf8_lossy(value.as_bytes()));
            if !IRRELEVANT.contains(&name) {
                let replaced = is_personal_field(name) || is_secret(&value, self.scanner);
                let value = if replaced { SENT } else { &value };
                headers.entry(name.to_owned()).or_default().push(value.into());
            }
        }
        if !headers.is_empty() {
            fields.push(("headers", inline(&one_or_list(headers), 1)));
        }
        fields.extend(self.response_body(&response.body));
        table(text, "response", &fields);
    }

    fn response_body(&mut self, body: &[u8]) -> Option<(&'static str, String)> {
        if body.is_empty() {
            return None;
        }
        if let Ok(mut json) = serde_json::from_slice::<Value>(body) {
            self.send_json(&mut json);
            // Only what TOML has, and nothing that the format would read in another way.
            if fits(&json) && !json.to_string().contains("{{") {
                return Some(("json", inline(&json, 1)));
            }
            return Some(("body", quoted(&json.to_string())));
        }
        match std::str::from_utf8(body) {
            Ok(text) if !is_secret(text, self.scanner) => Some(("body", quoted(text))),
            Ok(_) => Some(("body", quoted(SENT))),
            Err(_) => {
                let name = format!("{}-{}.bin", self.stem, self.files.len() + 1);
                self.files.push(RecordedFile { name: PathBuf::from(&name), bytes: body.to_vec() });
                Some(("body_file", quoted(&name)))
            }
        }
    }

    fn call(&self, text: &mut String, call: &RecordedCall) -> Result<(), HostError> {
        let args = Value::Object(call.args.clone());
        if args.to_string().contains("{{") || !fits(&args) {
            let message = format!("The arguments of {} have no form in a scenario.", call.operation);
            let hint = "Record it with arguments that have no {{ and that are less deeply nested.";
            return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint));
        }
        let _ = write!(text, "\n[[scenario.call]]\noperation = {}\n", quoted(&call.operation));
        if !call.args.is_empty() {
            let _ = writeln!(text, "args = {}", inline(&args, 0));
        }
        match &call.outcome {
            Ok(value) => {
                let mut value = value.clone();
                self.compare_json(&mut value);
                let shown = if fits(&value) { inline(&value, 0) } else { quoted(COMPARED) };
                let _ = writeln!(text, "expect.value = {shown}");
            }
            Err(Error::Failure(failure)) => {
                let (class, code) = (failure.class().name(), quoted(failure.code()));
                let _ = writeln!(text, "expect.failure = {{ class = \"{class}\", code = {code} }}");
            }
            Err(Error::Host(error)) => {
                let _ = writeln!(text, "expect.error = {{ code = \"{}\" }}", error.kind().code());
            }
        }
        if call.attempts != 1 {
            let _ = writeln!(text, "expect.attempts = {}", call.attempts);
        }
        Ok(())
    }

    /// Returns a text as it is compared: with the key as `{{key}}`, and without a secret.
    fn compared(&self, text: &str) -> String {
        self.compared_named(text, false)
    }

    fn compared_named(&self, text: &str, is_personal: bool) -> String {
        let is_key = |key: &&&str| {
            let rest = text.strip_prefix(**key);
            !key.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        if self.keys.iter().find(is_key).is_some() {
            return "{{key}}".to_owned();
        }
        match is_personal || text.contains("{{") || is_secret(text, self.scanner) {
            true => COMPARED.to_owned(),
            false => text.to_owned(),
        }
    }

    /// Replaces what must not be compared, or not be written.
    fn compare_json(&self, value: &mut Value) {
        each_text(value, &|name, text| {
            let is_personal = name.is_some_and(is_personal_parameter);
            self.compared_named(text, is_personal)
        });
    }

    /// Replaces what must not be written.
    fn send_json(&self, value: &mut Value) {
        each_text(value, &|_, text| match is_secret(text, self.scanner) {
            true => SENT.to_owned(),
            false => text.to_owned(),
        });
    }
}

/// Replaces each text, which gets the name of its field.
fn each_text(value: &mut Value, replace: &impl Fn(Option<&str>, &str) -> String) {
    fn visit(name: Option<&str>, value: &mut Value, replace: &impl Fn(Option<&str>, &str) -> String) {
        match value {
            Value::String(text) => *text = replace(name, text),
            Value::Array(items) => items.iter_mut().for_each(|item| visit(name, item, replace)),
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(name, field)| visit(Some(name), field, replace));
            }
            _ => {}
        }
    }
    visit(None, value, replace);
}

/// Returns whether a value can be written as TOML.
fn fits(value: &Value) -> bool {
    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(fields) => {
                let own = if fields.contains_key("...") { MAX_DEPTH } else { 0 };
                1 + own + fields.values().map(depth).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
    depth(value) <= MAX_DEPTH
}

/// Returns names with one value as that value, and names with several as lists.
fn one_or_list(fields: BTreeMap<String, Vec<Value>>) -> Value {
    let fields = fields.into_iter().map(|(name, mut values)| match values.len() {
        1 => (name, values.remove(0)),
        _ => (name, Value::Array(values)),
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

fn table(text: &mut String, name: &str, fields: &[(&str, String)]) {
    let _ = writeln!(text, "{name} = {{");
    for (key, value) in fields {
        let _ = writeln!(text, "    {key} = {value},");
    }
    text.push_str("}\n");
}

/// Writes a value as TOML: on one line if it is short.
fn inline(value: &Value, indent: usize) -> String {
    let short = on_one_line(value);
    if short.len() <= LINE_BYTES {
        return short;
    }
    let (outer, inner) = ("    ".repeat(indent), "    ".repeat(indent + 1));
    match value {
        Value::Array(items) => {
            let items = items.iter().map(|item| format!("{inner}{},\n", inline(item, indent + 1)));
            format!("[\n{}{outer}]", items.collect::<String>())
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, field)| format!("{inner}{} = {},\n", key(name), inline(field, indent + 1)));
            format!("{{\n{}{outer}}}", fields.collect::<String>())
        }
        _ => short,
    }
}

fn on_one_line(value: &Value) -> String {
    match value {
        Value::Null => quoted("{{null}}"),
        Value::Bool(flag) => flag.to_string(),
        // TOML has no other way to write a number of more than 63 bits, and the format none to compare it.
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(on_one_line).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, field)| format!("{} = {}", key(name), on_one_line(field)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
    }
}

fn key(name: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    match !name.is_empty() && name.bytes().all(is_bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}

/// Writes a text as a TOML string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

    use std::path::Path;

    use cofferdam_core::secret::Secret;
    use cofferdam_model::manifest::HostGrant;
    use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
    use serde_json::json;

    use super::*;
    use crate::scenario::tests::{MANIFEST, connector};
    use crate::scenario::{Answer, ScriptedResponse, parse_scenarios};
    use crate::service::WireRequest;

    const SECRET: &str = "tok-0123456789/abcdef";

    fn exchange(target: &str, body: &[u8], answer: &[u8]) -> Exchange {
        let headers = [
            ("host", "api.tickets.example"),
            ("authorization", "Bearer tok-0123456789/abcdef"),
            ("x-session-id", "s-1"),
            ("accept", "application/json"),
            ("idempotency-key", "audit-1:create"),
        ];
        let headers: HeaderMap = headers
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        Exchange {
            host: HostGrant::parse("api.tickets.example:443").unwrap(),
            request: WireRequest {
                method: "POST".to_owned(),
                target: target.to_owned(),
                headers,
                body: body.to_vec(),
            },
            response: ScriptedResponse {
                status: StatusCode::CREATED,
                headers: vec![
                    (HeaderName::from_static("set-cookie"), HeaderValue::from_static("id=ada-17")),
                    (HeaderName::from_static("location"), HeaderValue::from_static("/v1/issues/7")),
                ],
                body: answer.to_vec().into(),
            },
        }
    }

    fn recorded(exchange: Exchange) -> Result<RecordedScenario, HostError> {
        let manifest = Manifest::parse("connector.toml", MANIFEST).unwrap();
        let secret = Secret::new(SECRET.to_owned());
        let scanner = Scanner::for_bindings([("bearer/tickets/default", &secret)]);
        let args = json!({"title": "Broken", "none": null});
        let call = RecordedCall {
            operation: "create_issue".to_owned(),
            args: args.as_object().unwrap().clone(),
            key: "audit-1".to_owned(),
            outcome: Ok(json!({"id": 7, "url": null})),
            attempts: 1,
        };
        compose("an \"issue\"", "issue", &manifest, &[exchange], &[call], &scanner)
    }

    #[test]
    fn a_recording_is_a_scenario_without_what_is_personal() {
        let answer = json!({
            "id": 7,
            "none": null,
            "token": format!("{SECRET} and more"),
            "long": "x".repeat(200),
            "deep": [[[[1]]]],
        });
        let body = json!({"title": "Broken", "note": format!("my {SECRET}"), "key": "audit-1:create"});
        let target = "/v1/issues?state=open&access_token=abc&label=a&label=b";
        let recorded =
            recorded(exchange(target, body.to_string().as_bytes(), answer.to_string().as_bytes())).unwrap();
        let text = recorded.text();
        for absent in [SECRET, "ada-17", "s-1", "abc\""] {
            assert!(!text.contains(absent), "{absent}: {text}");
        }
        for part in [
            "authorization = \"{{any}}\"",
            "x-session-id = \"{{any}}\"",
            "accept = \"application/json\"",
            "idempotency-key = \"{{key}}\"",
            "set-cookie = \"redacted\"",
            "location = \"/v1/issues/7\"",
            "access_token = \"{{any}}\"",
            "label = [\"a\", \"b\"]",
            "note = \"{{any}}\"",
            "token = \"redacted\"",
            "none = \"{{null}}\"",
            "expect.value = { id = 7, url = \"{{null}}\" }",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let scenarios = parse_scenarios("recorded.toml", text, Path::new("."), &connector()).unwrap();
        let [scenario] = scenarios.as_slice() else { panic!("{text}") };
        assert_eq!((scenario.name.as_str(), scenario.calls.len()), ("an \"issue\"", 1));
        let Answer::Response(response) = &scenario.service.first().unwrap().answer else { panic!("{text}") };
        let sent: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((&sent["deep"], &sent["none"]), (&json!([[[[1]]]]), &Value::Null));
    }

    #[test]
    fn a_recording_with_a_secret_left_is_refused() {
        let binary = [b"\xff\xfe".as_slice(), SECRET.as_bytes()].concat();
        let key = json!({SECRET: 1}).to_string();
        for answer in [binary.as_slice(), key.as_bytes()] {
            let error = recorded(exchange("/v1/issues", b"", answer)).unwrap_err();
            assert!(error.message().contains("bearer/tickets/default"), "{error}");
        }
        // A path is compared, and so replaced.
        let recorded = recorded(exchange("/v1/tok-0123456789%2Fabcdef/x", b"", b"")).unwrap();
        assert!(!recorded.text().contains("tok-"), "{}", recorded.text());
    }

    #[test]
    fn bodies_that_are_no_text_get_files_of_their_own() {
        let recorded = recorded(exchange("/v1/issues", b"a=1&a=2", b"\xff\x00")).unwrap();
        assert!(recorded.text().contains("body_file = \"issue-1.bin\""), "{}", recorded.text());
        assert_eq!(
            recorded.files().iter().map(|file| file.bytes.as_slice()).collect::<Vec<_>>(),
            [b"\xff\x00"]
        );
    }
}
