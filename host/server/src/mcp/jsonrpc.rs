//! The checks of a message before the SDK reads it: JSON-RPC 2.0, no batch, with an id that an answer can
//! name.
//!
//! The SDK is lenient in dangerous or silent ways: it takes a request with an unreadable id for a
//! notification, and drops a line that is not JSON. Here each gets its answer, with the id if it has one. The
//! SDK also builds every value of a message, at up to a hundred times the size of its text. So values are
//! counted first, the arguments of a call stay text, and the rest for the SDK is short.

use std::borrow::Cow;

use bytes::Bytes;
use cofferdam_core::error::HostErrorKind;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, GetMeta as _, Implementation, RequestMetaObject,
};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::elicitation::shows_forms;
use crate::server::{JsonCountError, VALUE_BYTES, VALUES, count};

/// The longest id, in bytes.
const ID_BYTES: usize = 256;

/// The longest message without the arguments of a call, in bytes.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// The code of a request that exceeds the limits; the first of a server's own codes.
const BUSY: i32 = -32000;

/// The kind of a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MessageKind {
    /// It expects an answer.
    Request {
        /// Its method, which only affects the form of a rejection.
        method: String,
    },
    /// It expects no answer.
    Notification,
    /// It is an answer.
    Answer,
}

/// A message with the arguments of a call separated.
#[derive(Debug, PartialEq)]
pub(super) struct RpcMessage<'m> {
    pub(super) kind: MessageKind,
    pub(super) id: Option<Value>,
    /// The arguments, an object.
    pub(super) arguments: Option<&'m str>,
    /// The message with an empty object in the place of the arguments.
    pub(super) envelope: Cow<'m, [u8]>,
    /// The number of values in the envelope.
    values: usize,
}

impl RpcMessage<'_> {
    /// Returns the bytes that the envelope takes once it is parsed.
    pub(super) fn envelope_cost(&self) -> usize {
        self.envelope.len() + self.values * VALUE_BYTES
    }
}

/// The reason why a message is rejected.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    code: i32,
    message: &'static str,
    id: Value,
}

impl RpcError {
    const fn parse(message: &'static str) -> Self {
        Self { code: -32700, message, id: Value::Null }
    }

    pub(super) const fn request(message: &'static str) -> Self {
        Self { code: -32600, message, id: Value::Null }
    }

    /// The error for a valid request whose parameters do not fit its method.
    pub(super) const fn params(id: Value) -> Self {
        Self { code: -32602, message: "The parameters are not those of this method.", id }
    }

    /// The error for a request that exceeds the limits.
    pub(super) const fn busy(id: Value) -> Self {
        let message = "More requests are under way than are served at once. Try again later.";
        Self { code: BUSY, message, id }
    }

    /// Returns true if the request may be retried later.
    pub(super) const fn is_busy(&self) -> bool {
        self.code == BUSY
    }

    /// Returns the same rejection for the request with this id.
    fn with_id(self, id: Option<Value>) -> Self {
        Self { id: id.unwrap_or_default(), ..self }
    }

    /// Returns the answer as one line of JSON.
    pub(super) fn answer(&self) -> Vec<u8> {
        let Self { code, message, id } = self;
        let mut error = json!({"code": code, "message": message});
        if let (BUSY, Some(error)) = (*code, error.as_object_mut()) {
            error.insert("data".into(), json!({"code": HostErrorKind::Busy.code()}));
        }
        json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into_bytes()
    }
}

/// The members of a message, as they are written.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RpcMembers<'m> {
    #[serde(borrow)]
    jsonrpc: Option<&'m RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    id: Option<&'m RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    method: Option<&'m RawValue>,
    #[serde(borrow)]
    params: Option<&'m RawValue>,
    #[serde(deserialize_with = "is_present")]
    result: bool,
    #[serde(deserialize_with = "is_present")]
    error: bool,
}

/// The parameters that are checked here. A cursor must be a text: the SDK would take any other value for
/// none, and restart the list.
#[derive(Default, Deserialize)]
#[serde(default)]
struct CheckedParams<'m> {
    #[serde(borrow)]
    arguments: Option<&'m RawValue>,
    #[serde(borrow)]
    cursor: Option<&'m RawValue>,
}

/// Distinguishes `null` from a missing value.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

fn is_present<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

/// Reads a message.
pub(super) fn read(message: &[u8]) -> Result<RpcMessage<'_>, RpcError> {
    let first = message.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(match serde_json::from_slice::<IgnoredAny>(message) {
            Ok(_) if first == Some(&b'[') => RpcError::request("Batches are not part of this protocol."),
            Ok(_) => RpcError::request("A message is an object."),
            Err(_) => RpcError::parse("The message is not JSON."),
        });
    }
    let values = match count(message, VALUES) {
        Ok(values) => values,
        Err(JsonCountError::Malformed(_)) => {
            return Err(match serde_json::from_slice::<IgnoredAny>(message) {
                Ok(_) => {
                    RpcError::request("The message has a number, a depth or a character that is not taken.")
                }
                Err(_) => RpcError::parse("The message is not JSON."),
            });
        }
        Err(JsonCountError::RepeatedName(_)) => {
            // With a repeated name, a client may have shown the other argument to the approving person.
            let refused = RpcError::request("A name stands twice in one object of the message.");
            return Err(refused.with_id(read_id(message)));
        }
        Err(JsonCountError::TooManyValues(_)) => {
            return Err(RpcError::request("The message has more values than a server takes.")
                .with_id(read_id(message)));
        }
    };
    let head: RpcMembers<'_> =
        serde_json::from_slice(message).map_err(|_| RpcError::parse("The message is not JSON."))?;
    if head.jsonrpc.map(RawValue::get) != Some("\"2.0\"") {
        return Err(RpcError::request("`jsonrpc` is not \"2.0\"."));
    }
    let id = match head.id {
        None => None,
        Some(id) => match (as_id(id), id.get()) {
            (Some(id), _) => Some(id),
            (None, "null") if head.method.is_none() && head.error => None,
            _ => return Err(RpcError::request("The id is neither a whole number nor a short text.")),
        },
    };
    let params: CheckedParams<'_> = match head.params.map(RawValue::get) {
        None => CheckedParams::default(),
        Some(params) if params.starts_with('{') => {
            serde_json::from_str(params).map_err(|_| RpcError::parse("The message is not JSON."))?
        }
        Some(_) if head.method.is_some() => return Err(RpcError::params(id.unwrap_or_default())),
        Some(_) => CheckedParams::default(),
    };
    let method = head.method.map(|method| serde_json::from_str::<String>(method.get()));
    let is_call = matches!(&method, Some(Ok(method)) if method == "tools/call");
    let arguments = params.arguments.filter(|_| is_call).map(RawValue::get);
    let envelope = match arguments {
        Some(arguments) => replace_with_empty(message, arguments),
        None => Cow::Borrowed(message),
    };
    if envelope.len() > ENVELOPE_BYTES {
        let refused = RpcError::request("Beside the arguments of a call a message has 64 KiB at most.");
        // The id in an answer is the server's own. The client may have a request with the same one.
        return Err(refused.with_id(id.filter(|_| head.method.is_some())));
    }
    let is_cursor = |cursor: &RawValue| cursor.get().starts_with('"');
    let is_object = |arguments: &str| arguments.starts_with('{');
    if !params.cursor.is_none_or(is_cursor) || !arguments.is_none_or(is_object) {
        return Err(RpcError::params(id.unwrap_or_default()));
    }
    let kind = match (method, &id) {
        (Some(Err(_)), _) => return Err(RpcError::request("The method is not a text.")),
        (Some(Ok(method)), Some(_)) => MessageKind::Request { method },
        (Some(Ok(_)), None) => MessageKind::Notification,
        (None, _) if head.result || head.error => MessageKind::Answer,
        (None, _) => return Err(RpcError::request("The message has no method.")),
    };
    let own = arguments.map_or(0, |arguments| count(arguments.as_bytes(), VALUES).unwrap_or(0));
    Ok(RpcMessage { kind, id, arguments, envelope, values: values.saturating_sub(own) })
}

/// Returns the message with an empty object instead of `part`, which is a part of it.
fn replace_with_empty<'m>(message: &'m [u8], part: &str) -> Cow<'m, [u8]> {
    let from = (part.as_ptr() as usize).saturating_sub(message.as_ptr() as usize);
    let before = message.get(..from).unwrap_or_default();
    let after = message.get(from.saturating_add(part.len())..).unwrap_or_default();
    Cow::Owned([before, b"{}", after].concat())
}

/// Returns the id for the answer to a message that is rejected for its content. An answer gets none: its id is the
/// server's own.
fn read_id(message: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct RpcId<'m> {
        #[serde(borrow)]
        id: Option<&'m RawValue>,
        #[serde(default, deserialize_with = "is_present")]
        method: bool,
    }
    let read = serde_json::from_slice::<RpcId<'_>>(message).ok().filter(|read| read.method)?;
    read.id.and_then(as_id)
}

/// Returns the id, if it is one; no other value is built.
fn as_id(id: &RawValue) -> Option<Value> {
    // An escaped character has up to six bytes for each unescaped one.
    let text =
        Some(id.get()).filter(|text| text.len() <= 6 * ID_BYTES + 2 && !text.starts_with(['[', '{']))?;
    match serde_json::from_str(text).ok()? {
        Value::String(text) if text.len() <= ID_BYTES => Some(Value::String(text)),
        Value::Number(number) if number.is_i64() => Some(Value::Number(number)),
        _ => None,
    }
}

/// The longest name, and version, of a client that is kept, in characters.
const NAME: usize = 256;

/// Returns the message without the parts that the server does not use. Any other message is unchanged, for
/// the SDK to reject.
pub(super) fn trim_request(message: Bytes) -> Bytes {
    let Ok(mut greeting) = serde_json::from_slice::<ClientJsonRpcMessage>(&message) else { return message };
    let ClientJsonRpcMessage::Request(request) = &mut greeting else { return message };
    let ClientRequest::InitializeRequest(initialize) = &mut request.request else { return message };
    let short = |text: &str| text.chars().take(NAME).collect::<String>();
    let client = &initialize.params.client_info;
    let client = Implementation::new(short(&client.name), short(&client.version));
    initialize.params.meta = None;
    // The server asks its client for nothing but the answer in a form.
    let can_show_forms = shows_forms(&initialize.params.capabilities);
    initialize.params.capabilities = match can_show_forms {
        true => ClientCapabilities::builder().enable_elicitation().build(),
        false => ClientCapabilities::default(),
    };
    initialize.params.client_info = client;
    *request.request.get_meta_mut() = RequestMetaObject::default();
    serde_json::to_vec(&greeting).map_or(message, Bytes::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

    use serde_json::{Value, json};

    use super::{ENVELOPE_BYTES, MessageKind, NAME, VALUES, read, trim_request};

    #[test]
    fn invalid_messages_are_answered_with_their_code() {
        for (message, code) in [
            ("", -32700),
            ("{", -32700),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\"", -32700),
            ("{\"jsonrpc\": \"2.0\", \"id\": NaN, \"method\": \"ping\"}", -32700),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"} {}", -32700),
            ("\u{feff}{}", -32700),
            ("hello", -32700),
            ("[]", -32600),
            ("[{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\"}]", -32600),
            ("1", -32600),
            ("{}", -32600),
            ("{\"jsonrpc\": \"2.0\"}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1}", -32600),
            ("{\"jsonrpc\": \"1.0\", \"id\": 1, \"method\": \"ping\"}", -32600),
            ("{\"id\": 1, \"method\": \"ping\"}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": null, \"method\": \"ping\"}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1.5, \"method\": \"ping\"}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1e3, \"method\": \"ping\"}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": true, \"method\": \"ping\"}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": {\"a\": 1}, \"method\": \"ping\"}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1, \"id\": 2, \"method\": \"ping\"}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": 5}", -32600),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\", \"params\": [1]}", -32602),
            ("{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"ping\", \"params\": \"x\"}", -32602),
            (
                "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"tools/list\", \"params\": {\"cursor\": 1}}",
                -32602,
            ),
        ] {
            let answer: Value =
                serde_json::from_slice(&read(message.as_bytes()).unwrap_err().answer()).unwrap();
            assert_eq!(answer["error"]["code"], json!(code), "{message}: {answer}");
            assert_eq!((&answer["jsonrpc"], answer.get("id").is_some()), (&json!("2.0"), true), "{answer}");
        }
        let twice = r#"{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"arguments": {"to": [{"a": 1, "a": 2}]}}}"#;
        let answer: Value = serde_json::from_slice(&read(twice.as_bytes()).unwrap_err().answer()).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32600)), "{answer}");
        assert!(read(&[b'{', 0xff, b'}']).is_err(), "not UTF-8");
        let deep = format!(
            "{{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"x\", \"params\": {}1{}}}",
            "[".repeat(9999),
            "]".repeat(9999)
        );
        assert!(read(deep.as_bytes()).is_err());
        let long = json!({"jsonrpc": "2.0", "id": "x".repeat(257), "method": "ping"}).to_string();
        assert!(read(long.as_bytes()).is_err());
        let greeting = |length: usize| {
            let params = json!({"capabilities": {"experimental": {"x": "x".repeat(length)}}});
            json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params}).to_string()
        };
        let answer = read(greeting(64 << 10).as_bytes()).unwrap_err().answer();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32600)), "{answer}");
        assert!(read(greeting(63 << 10).as_bytes()).is_ok());
    }

    #[test]
    fn messages_are_classified_by_kind() {
        let kind = |message: Value| {
            let text = message.to_string();
            let message = read(text.as_bytes()).unwrap();
            (message.kind, message.id)
        };
        let ping = MessageKind::Request { method: "ping".into() };
        assert_eq!(
            kind(json!({"jsonrpc": "2.0", "id": -7, "method": "ping"})),
            (ping.clone(), Some(json!(-7)))
        );
        assert_eq!(
            kind(json!({"jsonrpc": "2.0", "id": "", "method": "ping", "params": {}})),
            (ping, Some(json!("")))
        );
        assert_eq!(kind(json!({"jsonrpc": "2.0", "method": "x"})).0, MessageKind::Notification);
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": 1, "result": null})).0, MessageKind::Answer);
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": null, "error": {}})).0, MessageKind::Answer);
    }

    #[test]
    fn the_arguments_of_a_call_stay_text() {
        let call = |arguments: &str, more: &str| {
            format!(
                r#"{{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {{"name": "x", "arguments": {arguments}{more}}}}}"#
            )
        };
        let zeros = vec!["0"; 400_000].join(",");
        let text = call(&format!("{{ \"a\": [{zeros}]}}"), ", \"_meta\": {\"arguments\": {\"b\": 1}}");
        let message = read(text.as_bytes()).unwrap();
        assert_eq!(message.arguments.unwrap(), format!("{{ \"a\": [{zeros}]}}"));
        let envelope = call("{}", ", \"_meta\": {\"arguments\": {\"b\": 1}}");
        assert_eq!(std::str::from_utf8(&message.envelope).unwrap(), envelope);
        assert!(message.envelope_cost() < 2_000, "{}", message.envelope_cost());
        assert!(read(call("{}", "").as_bytes()).unwrap().arguments.is_some());
        assert!(read(call("null", "").as_bytes()).unwrap().arguments.is_none());
        // The parameters of other methods are no arguments of a call.
        let other = text.replace("tools/call", "tools/list");
        assert!(read(other.as_bytes()).is_err(), "and are too long for the SDK");
        let answer = |text: &str| -> Value {
            serde_json::from_slice(&read(text.as_bytes()).unwrap_err().answer()).unwrap()
        };
        assert_eq!(answer(&call("[1]", ""))["error"]["code"], -32602);
        let many_zeros = vec!["0"; VALUES].join(",");
        let many = answer(&call(&format!("{{\"a\": [{many_zeros}]}}"), ""));
        assert_eq!((&many["id"], &many["error"]["code"]), (&json!(7), &json!(-32600)), "{many}");
        let long = "x".repeat(ENVELOPE_BYTES);
        let long = answer(&call("{}", &format!(", \"_meta\": {{\"a\": \"{long}\"}}")));
        assert_eq!((&long["id"], &long["error"]["code"]), (&json!(7), &json!(-32600)), "{long}");
        // The id of an answer is not the client's to be refused by.
        let result = |result: &str| format!(r#"{{"jsonrpc": "2.0", "id": 7, "result": {result}}}"#);
        let long = format!("{{\"action\": \"{}\"}}", "x".repeat(ENVELOPE_BYTES));
        for result in [result(&long), result(&format!("[{many_zeros}]")), result(r#"{"a": 1, "a": 2}"#)] {
            let refused = answer(&result);
            assert_eq!(
                (&refused["id"], &refused["error"]["code"]),
                (&Value::Null, &json!(-32600)),
                "{refused}"
            );
        }
        for huge in ["id", "method", "jsonrpc"] {
            let message = format!(r#"{{"jsonrpc": "2.0", "{huge}": [{zeros}]}}"#).replacen(
                "\"jsonrpc\": \"2.0\", \"jsonrpc\"",
                "\"jsonrpc\"",
                1,
            );
            assert_eq!(answer(&message)["error"]["code"], -32600, "{huge}");
        }
    }
    #[test]
    fn only_client_name_and_version_are_kept() {
        let short = |params: Value| -> Value {
            let message = json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params});
            serde_json::from_slice(&trim_request(message.to_string().into())).unwrap()
        };
        let client = json!({"name": "é".repeat(1_000), "version": "1", "title": "x".repeat(1_000)});
        let greeting =
            short(json!({"protocolVersion": "2025-06-18", "clientInfo": client, "_meta": {"x": [[]]},
            "capabilities": {"experimental": {"x": {"y": [[], []]}}, "roots": {"listChanged": true}}}));
        assert_eq!((&greeting["id"], &greeting["method"]), (&json!("a"), &json!("initialize")));
        let client = json!({"name": "é".repeat(NAME), "version": "1"});
        let kept =
            json!({"protocolVersion": "2025-06-18", "clientInfo": client, "capabilities": {}, "_meta": {}});
        assert_eq!(greeting["params"], kept);
        let wrong = json!({"protocolVersion": 1});
        assert_eq!(short(wrong.clone())["params"], wrong);
        for (elicitation, kept) in [
            (json!({}), json!({"elicitation": {}})),
            (json!({"form": {"schemaValidation": true}, "url": {}}), json!({"elicitation": {}})),
            (json!({"url": {}}), json!({})),
        ] {
            let capabilities = json!({"elicitation": elicitation, "sampling": {}});
            let client = json!({"name": "a", "version": "1"});
            let greeting =
                json!({"protocolVersion": "2025-11-25", "clientInfo": client, "capabilities": capabilities});
            assert_eq!(short(greeting)["params"]["capabilities"], kept, "{elicitation}");
        }
    }
}
