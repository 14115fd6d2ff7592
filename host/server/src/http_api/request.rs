//! The body of a request for a call. It is parsed strictly, so that no field is silently ignored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::limits::{LimitRequest, parse_time};
use cofferdam_runtime::call::{Call, OnKeyConflict};
use cofferdam_runtime::flow::RunRequest;
use cofferdam_runtime::host::Host;
use http::{HeaderMap, header};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::server::{BudgetCharge, CallArguments, VALUES, count};

/// The header with the idempotency key of a call.
pub(super) const KEY: &str = "idempotency-key";

/// The pattern of an idempotency key, bare or in quotation marks.
pub(super) const KEY_PATTERN: &str = r#"^("[!#-9;-\[\]-}]{1,200}"|[!#-9;-\[\]-}]{1,200})$"#;

/// One call.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallRequest {
    /// The connector: `name@version`, with `#sha256:<64 digits>` to pin its bytes; or the name alone if one
    /// version is installed.
    #[schemars(regex(
        pattern = r"^(github|gitlab|hub|local)://[a-z0-9]{1,20}/[a-z0-9]{1,20}@(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})$"
    ))]
    connector: String,
    /// The operation.
    #[schemars(length(min = 1, max = 200))]
    op: String,
    /// Its arguments: one field for each parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Map<String, Value>")]
    args: Option<Box<RawValue>>,
    /// The limits of the call; missing ones have their defaults.
    #[serde(default, skip_serializing_if = "Amounts::is_default")]
    limits: Amounts,
    /// The identity for each service; it selects the credential.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    identities: BTreeMap<String, String>,
    /// The name of the retry profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-cofferdam" = "retry-profile"))]
    retry: Option<String>,
    /// The longest that one attempt may take, like `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,3}(ms|s)$"))]
    attempt_timeout: Option<String>,
    /// True if the operation must not be repeated, whatever its manifest says.
    #[serde(default, skip_serializing_if = "is_false")]
    not_idempotent: bool,
    /// The handling of the call if one with its idempotency key is still running.
    #[serde(default, skip_serializing_if = "Running::is_default")]
    if_running: Running,
}

/// One call of an operation that the path names.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationRequest {
    /// Its arguments: one field for each parameter.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>", extend("default" = {}))]
    args: Option<Box<RawValue>>,
    /// The limits of the call; missing ones have their defaults.
    #[serde(default)]
    limits: Amounts,
    /// The identity for each service; it selects the credential.
    #[serde(default)]
    identities: BTreeMap<String, String>,
    /// The name of the retry profile.
    #[serde(default)]
    #[schemars(extend("x-cofferdam" = "retry-profile"))]
    retry: Option<String>,
    /// The longest that one attempt may take, like `10s`.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,3}(ms|s)$"))]
    attempt_timeout: Option<String>,
    /// True if the operation must not be repeated, whatever its manifest says.
    #[serde(default)]
    not_idempotent: bool,
    /// The handling of the call if one with its idempotency key is still running.
    #[serde(default)]
    if_running: Running,
}

/// The limits of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Amounts {
    /// The longest time of the call, with all its attempts and waits, like `30s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,3}(ms|s)$"))]
    wall_time: Option<String>,
    /// The most that it may compute, in fuel.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "whole_number")]
    #[schemars(range(min = 1, max = 1_000_000_000_000u64))]
    fuel: Option<u64>,
    /// The most memory that it may use, like `64MiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,2}MiB$"))]
    memory: Option<String>,
}

/// The handling of a call if one with its idempotency key is still running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Running {
    /// It waits for the other's outcome, at most for its own time limit.
    #[default]
    Wait,
    /// It is refused.
    Refuse,
}

/// One run of an action.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionRequest {
    /// Its arguments: one field for each of its inputs.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>", extend("default" = {}))]
    args: Option<Box<RawValue>>,
    /// The identity for each service in every step; it selects the credential.
    #[serde(default)]
    identities: BTreeMap<String, String>,
    /// The longest that the whole action may take, like `30s`.
    #[serde(default)]
    #[schemars(regex(pattern = r"^[1-9][0-9]{0,3}(ms|s)$"))]
    wall_time: Option<String>,
    /// The handling of the run if one of the same action with its idempotency key is still running.
    #[serde(default)]
    if_running: Running,
}

/// Reads a whole number. For JSON Schema `30.0` is one as well, and some clients write all numbers like that.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(deserializer)? else { return Ok(None) };
    let whole = number.as_f64().filter(|float| float.fract() == 0.0).map(|float| format!("{float:.0}"));
    let read = number.as_u64().or_else(|| whole?.parse().ok());
    read.map(Some).ok_or_else(|| D::Error::custom(format_args!("`{number}` is no whole number above zero")))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Amounts {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads a body. Its values are counted before any is built, and its arguments stay text.
pub(super) fn read<'b, T: Deserialize<'b>>(
    body: &'b [u8],
    what: &str,
    example: &str,
) -> Result<T, HostError> {
    let wrong = |what: &str, error: &str| {
        let message = format!("The body is not {what}: {}.", sanitize_line(error, 300));
        let hint = format!("Send {example}; GET /openapi.json has every field.");
        HostError::new(HostErrorKind::Validation, message).with_hint(hint)
    };
    count(body, VALUES).map_err(|rejection| wrong("JSON", &rejection.into_error().to_string()))?;
    // serde would accept a list of the fields' values as a struct.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(wrong(what, "expected an object"));
    }
    serde_json::from_slice(body).map_err(|error| wrong(what, &error.to_string()))
}

/// Returns the text of the arguments, which must be an object.
pub(super) fn args_text(args: Option<Box<RawValue>>) -> Result<String, HostError> {
    let text = args.map_or_else(|| "{}".to_owned(), |args| String::from(Box::<str>::from(args)));
    match text.starts_with('{') {
        true => Ok(text),
        false => Err(HostError::new(
            HostErrorKind::Validation,
            "args: expected a map, with a field for each parameter.",
        )
        .with_hint("Leave it out where there are no parameters.")),
    }
}

/// Parses a length of time.
pub(super) fn time(field: &str, text: Option<&str>) -> Result<Option<Duration>, HostError> {
    let read = text.map(|text| {
        parse_time(text).ok_or_else(|| {
            HostError::new(HostErrorKind::Validation, format!("{field}: it is no length of time."))
                .with_hint("Write it as a whole number above zero with ms, s or m, like \"10s\".")
        })
    });
    read.transpose()
}

impl Running {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    const fn into_policy(self) -> OnKeyConflict {
        match self {
            Self::Wait => OnKeyConflict::Wait,
            Self::Refuse => OnKeyConflict::Refuse,
        }
    }
}

impl ActionRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// As [`CallRequest::read`].
    pub(super) fn read(body: &[u8]) -> Result<Self, HostError> {
        read(body, "a run of an action", r#"{"args": {}}"#)
    }

    /// Returns the requested run.
    ///
    /// # Errors
    /// `validation` for a value that is not acceptable.
    pub(super) fn run(self, charge: Option<Arc<BudgetCharge>>) -> Result<RunRequest, HostError> {
        let wall_time = time("wall_time", self.wall_time.as_deref())?;
        let args = CallArguments::new(args_text(self.args)?, charge).take_values()?;
        let run = RunRequest::new(args).if_running(self.if_running.into_policy());
        let run =
            self.identities.into_iter().fold(run, |run, (service, identity)| run.identity(service, identity));
        Ok(match wall_time {
            Some(longest) => run.wall_time(longest),
            None => run,
        })
    }
}

impl OperationRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// As [`CallRequest::read`].
    pub(super) fn read(body: &[u8]) -> Result<Self, HostError> {
        read(body, "a call of an operation", r#"{"args": {}}"#)
    }

    /// Returns the request of a call of this operation.
    pub(super) fn of(self, connector: String, op: String) -> CallRequest {
        let Self { args, limits, identities, retry, attempt_timeout, not_idempotent, if_running } = self;
        CallRequest {
            connector,
            op,
            args,
            limits,
            identities,
            retry,
            attempt_timeout,
            not_idempotent,
            if_running,
        }
    }
}

impl CallRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// `validation`: it is not JSON, a name is repeated in an object, or a field is missing, unknown or of
    /// another type.
    pub(super) fn read(body: &[u8]) -> Result<Self, HostError> {
        read(body, "a call", r#"{"connector": "github://acme/slack@1.2.0", "op": "post", "args": {}}"#)
    }

    /// Returns the connector as it was named, and the operation.
    pub(super) fn target(&self) -> (&str, &str) {
        (&self.connector, &self.op)
    }

    /// Returns the name of the retry profile, if the caller chose one.
    pub(super) fn retry_name(&self) -> Option<&str> {
        self.retry.as_deref()
    }

    /// Returns true if the caller wants the call refused if one with its key is running.
    pub(super) fn is_refused_if_running(&self) -> bool {
        self.if_running == Running::Refuse
    }

    /// Names the connector completely, with its version and its pin.
    ///
    /// # Errors
    /// `validation`, `connector_not_found`.
    pub(super) fn resolve(&mut self, host: &Host) -> Result<(), HostError> {
        let connector = host.resolve(&self.connector)?;
        host.require_installed(&connector)?;
        self.connector = match connector.hash() {
            Some(hash) => format!("{connector}#sha256:{hash}"),
            None => connector.to_string(),
        };
        Ok(())
    }

    /// Returns the requested call. Reads the installed packages, so it must not run on the executor's
    /// threads.
    ///
    /// # Errors
    /// `validation` for a value that is not acceptable, `connector_not_found`.
    pub(super) fn call(self, host: &Host) -> Result<Call, HostError> {
        let amounts = &self.limits;
        let limits =
            LimitRequest::parse(amounts.fuel, amounts.wall_time.as_deref(), amounts.memory.as_deref());
        let limits =
            limits.map_err(|error| HostError::new(HostErrorKind::Validation, format!("limits: {error}.")))?;
        let attempt_timeout = time("attempt_timeout", self.attempt_timeout.as_deref())?;
        let retry = self.retry.as_deref().map(|name| host.profile(name)).transpose()?;
        let connector = host.resolve(&self.connector)?;
        let args = args_text(self.args)?;
        let mut call = Call::from_text(connector, self.op, args).limits(limits);
        call = self
            .identities
            .into_iter()
            .fold(call, |call, (service, identity)| call.identity(service, identity));
        if let Some(longest) = attempt_timeout {
            call = call.attempt_timeout(longest);
        }
        if let Some(profile) = retry {
            call = call.retry(profile);
        }
        if self.not_idempotent {
            call = call.not_idempotent();
        }
        Ok(call.if_running(self.if_running.into_policy()))
    }
}

/// Returns true if the content type of the body is JSON. A foreign web page cannot send this type without a
/// CORS preflight.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = said.and_then(|said| said.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

/// Returns the idempotency key, given bare or as a string of a structured field, in quotation marks.
///
/// # Errors
/// `validation`: the header is repeated, or is not text.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, HostError> {
    let wrong = |what: &str| {
        HostError::new(HostErrorKind::Validation, format!("The header Idempotency-Key {what}."))
            .with_hint("Give it once: 1 to 200 printable ASCII characters without spaces, `:` and `~`.")
    };
    let mut values = headers.get_all(KEY).iter();
    let key = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(key), None) => key.to_str().map_err(|_| wrong("is no text"))?.trim(),
        (Some(_), Some(_)) => return Err(wrong("stands there twice")),
    };
    let bare = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key);
    // In a string of a structured field these two characters have a special meaning.
    if bare.contains(['"', '\\']) {
        return Err(wrong("has a quotation mark or a backslash within the key"));
    }
    Ok(Some(bare.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use http::HeaderValue;

    use super::*;

    #[test]
    fn invalid_bodies_are_named() {
        for (body, said) in [
            ("", "not JSON"),
            ("{", "not JSON"),
            ("[]", "not a call"),
            ("{}", "connector"),
            (r#"{"connector": "c", "op": "o", "argz": {}}"#, "`argz`"),
            (r#"{"connector": "c", "op": 1}"#, "expected a string"),
            (r#"{"connector": "c", "connector": "d", "op": "o"}"#, "`connector` stands twice"),
            (r#"{"connector": "c", "op": "o", "args": {"a": 1, "a": 2}}"#, "`a` stands twice"),
            (r#"{"connector": "c", "op": "o"} {}"#, "trailing"),
            (r#"{"connector": "c", "op": "o", "limits": {"fule": 1}}"#, "`fule`"),
            (r#"{"connector": "c", "op": "o", "if_running": "hurry"}"#, "`hurry`"),
        ] {
            let error = CallRequest::read(body.as_bytes()).unwrap_err();
            assert!(error.message().contains(said), "{body}: {error}");
            assert_eq!(error.kind(), HostErrorKind::Validation);
        }
        for args in ["[]", "1", "\"{}\""] {
            let body = format!(r#"{{"connector": "c", "op": "o", "args": {args}}}"#);
            let error = args_text(CallRequest::read(body.as_bytes()).unwrap().args).unwrap_err();
            assert!(error.message().contains("expected a map"), "{args}: {error}");
        }
        let many =
            format!(r#"{{"connector": "c", "op": "o", "args": {{"a": [{}]}}}}"#, vec!["0"; VALUES].join(","));
        let error = CallRequest::read(many.as_bytes()).unwrap_err();
        assert!(error.message().contains("more than 500000 values"), "{error}");
        assert!(CallRequest::read(&[0xff, 0xfe]).is_err());
        assert!(CallRequest::read("[".repeat(100_000).as_bytes()).is_err());
        assert!(CallRequest::read(br#"{"connector": "c", "op": "o"}"#).is_ok());
    }

    #[test]
    fn fuel_is_any_whole_number_of_json() {
        let fuel = |number: &str| {
            let body = format!(r#"{{"args": {{}}, "limits": {{"fuel": {number}}}}}"#);
            OperationRequest::read(body.as_bytes()).map(|request| request.limits.fuel).ok()
        };
        for number in ["3240", "3240.0", "3.24e3"] {
            assert_eq!(fuel(number), Some(Some(3240)), "{number}");
        }
        assert_eq!(fuel("null"), Some(None));
        for number in ["1.5", "-1", "-1.0", "1e300", "\"1\"", "true"] {
            assert_eq!(fuel(number), None, "{number}");
        }
    }

    #[test]
    fn an_idempotency_key_is_bare_or_quoted_and_single() {
        let headers = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(KEY, HeaderValue::from_static(value));
            }
            headers
        };
        let key =
            |values: &[&'static str]| idempotency_key(&headers(values)).map_err(|error| error.to_string());
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&["order-17"]), Ok(Some("order-17".into())));
        assert_eq!(key(&["\"order-17\""]), Ok(Some("order-17".into())));
        assert!(key(&["a", "b"]).unwrap_err().contains("twice"));
        for odd in ["a\"b", "\"", "\"a\\b\""] {
            assert!(key(&[odd]).unwrap_err().contains("within the key"), "{odd}");
        }
        let mut odd = HeaderMap::new();
        odd.insert(KEY, HeaderValue::from_bytes(&[0xe4]).unwrap());
        assert!(idempotency_key(&odd).is_err());
    }

    #[test]
    fn a_body_needs_the_json_content_type() {
        let is = |kind: &'static str| {
            is_json(&HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]))
        };
        assert!(is("application/json") && is("Application/JSON; charset=utf-8"));
        assert!(!is("text/plain") && !is("application/x-www-form-urlencoded") && !is(""));
        assert!(!is_json(&HeaderMap::new()));
    }
}
