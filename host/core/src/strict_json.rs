//! Strict JSON: a name must not occur twice in an object, since one of the two values would be lost silently.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::failure::sanitize_line;

/// Parses one JSON value without anything after it.
pub fn parse(text: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = StrictVisitor.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct StrictVisitor;

impl<'de> DeserializeSeed<'de> for StrictVisitor {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(duplicate_name_error(&name));
            }
            object.insert(name, fields.next_value_seed(self)?);
        }
        Ok(Value::Object(object))
    }
}

/// Returns the error for a name that an object has twice.
pub fn duplicate_name_error<E: serde::de::Error>(name: &str) -> E {
    E::custom(format!("the name `{}` stands twice in one object", sanitize_line(name, 100)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::parse;

    #[test]
    fn strict_json_matches_serde_without_duplicates() {
        for text in [
            r#"{"a": [1, -2, 0.5, 1e300, 18446744073709551615, "x\u00e9", true, null], "b": {"a": {}}}"#,
            "[]",
            "7",
            r#""text""#,
            "[1,]",
            "{} {}",
            "{a: 1}",
            "",
            "1e999",
        ] {
            let plain = serde_json::from_str::<serde_json::Value>(text);
            assert_eq!(parse(text.as_bytes()).ok(), plain.ok(), "{text}");
        }
        for text in [r#"{"a": 1, "a": 1}"#, r#"{"x": [{"a": 1, "\u0061": 2}]}"#] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("`a` stands twice") && error.contains("line 1"), "{error}");
        }
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }
}
