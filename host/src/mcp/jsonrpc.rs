//! What a message is before the SDK reads it: JSON-RPC 2.0, alone, with an id that an answer can name.
//!
//! The SDK is lenient where that is dangerous or says nothing: a request whose id it cannot read it takes for a
//! notification, and a line that is not JSON it drops. Here each gets its answer, with the id where it has one.

use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Value, json};

use crate::error::HostErrorKind;
use crate::strict_json::Single;

/// The longest id, in bytes.
const ID_BYTES: usize = 256;

/// The longest greeting, in bytes. What a client says in it is kept as long as its session.
const GREETING_BYTES: usize = 64 * 1024;

/// The code of a request for which there is no room; the first of those that are a server's own.
const BUSY: i32 = -32000;

/// What a message is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// It wants an answer.
    Request {
        /// Its method, which decides nothing but how it is refused.
        method: String,
    },
    /// It wants none.
    Notification,
    /// It is an answer.
    Answer,
}

/// Why a message goes no further.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refused {
    code: i32,
    message: &'static str,
    id: Value,
}

impl Refused {
    const fn parse(message: &'static str) -> Self {
        Self { code: -32700, message, id: Value::Null }
    }

    pub(super) const fn request(message: &'static str) -> Self {
        Self { code: -32600, message, id: Value::Null }
    }

    /// A request that is one, and whose parameters are not its method's.
    pub(super) const fn params(id: Value) -> Self {
        Self { code: -32602, message: "The parameters are not those of this method.", id }
    }

    /// A request for which there is no room.
    pub(super) const fn busy(id: Value) -> Self {
        let message = "More requests are under way than are served at once. Try again later.";
        Self { code: BUSY, message, id }
    }

    /// Whether it may be asked for later.
    pub(super) const fn is_busy(&self) -> bool {
        self.code == BUSY
    }

    /// The answer, as one line of JSON.
    pub(super) fn answer(&self) -> Vec<u8> {
        let Self { code, message, id } = self;
        let mut error = json!({"code": code, "message": message});
        if let (BUSY, Some(error)) = (*code, error.as_object_mut()) {
            error.insert("data".into(), json!({"code": HostErrorKind::Busy.code()}));
        }
        json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string().into_bytes()
    }
}

/// The members that every message has, and of the others that they are there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    jsonrpc: Option<Value>,
    #[serde(deserialize_with = "present")]
    id: Option<Value>,
    method: Option<Value>,
    params: Option<Params>,
    #[serde(deserialize_with = "there")]
    result: bool,
    #[serde(deserialize_with = "there")]
    error: bool,
}

/// What a message that is refused is answered under.
#[derive(Deserialize)]
struct Named {
    id: Option<Value>,
}

/// `null` is not the lack of a value.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn there<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

/// Whether parameters are an object, in which no name stands twice: of two arguments of one name a client may have
/// shown the other to whoever approved them. A cursor in it is a text: the SDK would take another for none, and begin
/// the list anew. What else is in them is read later, once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Params {
    Object,
    Other,
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Params;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("parameters")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Params, M::Error> {
                let (mut params, mut names) = (Params::Object, HashSet::new());
                while let Some(name) = map.next_key::<String>()? {
                    if name != "cursor" {
                        map.next_value::<Single>()?;
                    } else if !matches!(map.next_value()?, Value::String(_) | Value::Null) {
                        params = Params::Other;
                    }
                    if !names.insert(name) {
                        return Err(M::Error::custom("a name stands twice"));
                    }
                }
                Ok(params)
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Params, S::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Params::Other)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Params, E> {
                Ok(Params::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Params, E> {
                Ok(Params::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Params, E> {
                Ok(Params::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Params, E> {
                Ok(Params::Other)
            }

            fn visit_str<E>(self, _: &str) -> Result<Params, E> {
                Ok(Params::Other)
            }

            fn visit_unit<E>(self) -> Result<Params, E> {
                Ok(Params::Other)
            }
        }
        from.deserialize_any(Look)
    }
}

/// What the message is, and its id where it is a request.
pub(super) fn read(message: &[u8]) -> Result<(Kind, Option<Value>), Refused> {
    let first = message.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(match serde_json::from_slice::<IgnoredAny>(message) {
            Ok(_) if first == Some(&b'[') => Refused::request("Batches are not part of this protocol."),
            Ok(_) => Refused::request("A message is an object."),
            Err(_) => Refused::parse("The message is not JSON."),
        });
    }
    let head: Head = serde_json::from_slice(message).map_err(|error| match error.classify() {
        Category::Syntax | Category::Eof | Category::Io => Refused::parse("The message is not JSON."),
        Category::Data => Refused {
            id: serde_json::from_slice::<Named>(message)
                .ok()
                .and_then(|named| named.id)
                .filter(is_id)
                .unwrap_or_default(),
            ..Refused::request("A name stands twice in one object of the message.")
        },
    })?;
    if head.jsonrpc.as_ref().and_then(Value::as_str) != Some("2.0") {
        return Err(Refused::request("`jsonrpc` is not \"2.0\"."));
    }
    let id = match head.id {
        None => None,
        Some(id) if is_id(&id) => Some(id),
        Some(Value::Null) if head.method.is_none() && head.error => return Ok((Kind::Answer, None)),
        Some(_) => return Err(Refused::request("The id is neither a whole number nor a short text.")),
    };
    match head.method {
        Some(Value::String(method)) => match (id, head.params) {
            (id, Some(Params::Other)) => Err(Refused::params(id.unwrap_or_default())),
            (Some(id), _) if method == "initialize" && message.len() > GREETING_BYTES => {
                Err(Refused { id, ..Refused::request("A greeting has 64 KiB at most.") })
            }
            (Some(id), _) => Ok((Kind::Request { method }, Some(id))),
            (None, _) => Ok((Kind::Notification, None)),
        },
        Some(_) => Err(Refused::request("The method is not a text.")),
        None if head.result || head.error => Ok((Kind::Answer, None)),
        None => Err(Refused::request("The message has no method.")),
    }
}

fn is_id(id: &Value) -> bool {
    match id {
        Value::String(text) => text.len() <= ID_BYTES,
        Value::Number(number) => number.is_i64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use serde_json::{Value, json};

    use super::{Kind, read};

    #[test]
    fn attack_152_what_is_no_message_is_answered_with_its_code() {
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
    fn what_is_one_is_told_by_its_kind() {
        let kind = |message: Value| read(message.to_string().as_bytes()).unwrap();
        let ping = Kind::Request { method: "ping".into() };
        assert_eq!(
            kind(json!({"jsonrpc": "2.0", "id": -7, "method": "ping"})),
            (ping.clone(), Some(json!(-7)))
        );
        assert_eq!(
            kind(json!({"jsonrpc": "2.0", "id": "", "method": "ping", "params": {}})),
            (ping, Some(json!("")))
        );
        assert_eq!(kind(json!({"jsonrpc": "2.0", "method": "x"})).0, Kind::Notification);
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": 1, "result": null})).0, Kind::Answer);
        assert_eq!(kind(json!({"jsonrpc": "2.0", "id": null, "error": {}})).0, Kind::Answer);
    }
}
