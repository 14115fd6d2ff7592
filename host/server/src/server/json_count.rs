//! Counts the values of a JSON text without building any: the first check of all input of servers.
//!
//! A value takes up to a hundred bytes once it is built, and two of its text.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use cofferdam_core::strict_json::duplicate_name_error;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

/// The most names of one object. The types of operations have far fewer; each costs more than its text while
/// it is compared with the others.
const NAMES: usize = 65_536;

/// The reason why a text is not accepted as JSON.
#[derive(Debug)]
pub(crate) enum JsonCountError {
    Malformed(serde_json::Error),
    RepeatedName(serde_json::Error),
    TooManyValues(serde_json::Error),
}

impl JsonCountError {
    pub(crate) fn into_error(self) -> serde_json::Error {
        match self {
            Self::Malformed(error) | Self::RepeatedName(error) | Self::TooManyValues(error) => error,
        }
    }
}

/// Counts the values of one JSON text: each item of an array, each field of an object, and the whole. At most
/// `most` are accepted, and no name may be repeated in an object, as in
/// [`parse`](cofferdam_core::strict_json::parse).
pub(crate) fn count(text: &[u8], most: usize) -> Result<usize, JsonCountError> {
    let counter = ValueCounter { left: &Cell::new(most), is_over: &Cell::new(false), most };
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let counted = counter.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    match counted {
        Ok(()) => Ok(most - counter.left.get()),
        Err(error) if error.classify() != Category::Data => Err(JsonCountError::Malformed(error)),
        Err(error) if counter.is_over.get() => Err(JsonCountError::TooManyValues(error)),
        Err(error) => Err(JsonCountError::RepeatedName(error)),
    }
}

#[derive(Clone, Copy)]
struct ValueCounter<'c> {
    left: &'c Cell<usize>,
    is_over: &'c Cell<bool>,
    most: usize,
}

impl ValueCounter<'_> {
    fn over<E: serde::de::Error>(self, most: usize, what: &str) -> E {
        self.is_over.set(true);
        E::custom(format!("it has more than {most} {what}"))
    }
}

impl<'de> DeserializeSeed<'de> for ValueCounter<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else { return Err(self.over(self.most, "values")) };
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueCounter<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(ObjectKey(name)) = fields.next_key()? {
            if names.len() >= NAMES {
                return Err(self.over(NAMES, "names in one object"));
            }
            fields.next_value_seed(self)?;
            if let Some(name) = names.replace(name) {
                return Err(duplicate_name_error(&name));
            }
        }
        Ok(())
    }
}

/// A name in an object: borrowed from the text unless it is written with escapes.
#[derive(Deserialize)]
struct ObjectKey<'n>(#[serde(borrow)] Cow<'n, str>);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{JsonCountError, NAMES, count};
    use cofferdam_core::strict_json::parse;

    #[test]
    fn counting_accepts_what_parsing_accepts() {
        for text in
            [r#"{"a": [1, -2, 0.5, "x\u00e9", true, null], "b": {"a": {}}}"#, "[]", "7", "{a: 1}", "1e999"]
        {
            assert_eq!(count(text.as_bytes(), 100).ok().is_some(), parse(text.as_bytes()).is_ok(), "{text}");
        }
        let text = br#"{"a": [1, 2, {"b": null}]}"#;
        assert_eq!(count(text, 6).unwrap(), 6);
        assert!(matches!(count(text, 5), Err(JsonCountError::TooManyValues(_))));
        assert!(matches!(count(b"[1,]", 5), Err(JsonCountError::Malformed(_))));
        for text in [r#"{"a": 1, "a": 1}"#, r#"{"x": [{"a": 1, "\u0061": 2}]}"#] {
            assert!(matches!(count(text.as_bytes(), 9), Err(JsonCountError::RepeatedName(_))), "{text}");
        }
        let names: Vec<_> = (0..=NAMES).map(|n| format!("\"{n}\": 0")).collect();
        let wide = format!("{{{}}}", names.join(","));
        assert!(matches!(count(wide.as_bytes(), usize::MAX), Err(JsonCountError::TooManyValues(_))));
        assert!(matches!(count("[".repeat(100_000).as_bytes(), 9), Err(JsonCountError::TooManyValues(_))));
    }
}
