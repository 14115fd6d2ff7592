//! The walk over the caller's arguments: each JSON value is checked against its type and written to its slot.

use cofferdam_model::package::WitName;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::argument_error::ArgumentError;
use super::encode::Encoder;
use super::layout::{AbiLayout, LayoutKind};
use super::scalars::{FloatValue, ScalarToken, float, one_char, signed, unsigned};

/// The destination of a value, and its expected type.
pub(super) struct ValueCursor<'e, 'l> {
    pub(super) to: &'e mut Encoder,
    pub(super) wish: ExpectedValue<'l>,
    pub(super) at: usize,
}

/// The expected form of a value.
#[derive(Clone, Copy)]
pub(super) enum ExpectedValue<'l> {
    /// Of a type.
    Of(&'l AbiLayout),
    /// `null`, since there is no type.
    Null,
    /// The name of a flag.
    Flag(&'l [WitName]),
}

impl<'e, 'l> ValueCursor<'e, 'l> {
    pub(super) fn new(to: &'e mut Encoder, layout: &'l AbiLayout, at: usize) -> Self {
        Self { to, wish: ExpectedValue::Of(layout), at }
    }

    /// Returns the destination of a value that is present: inside an option, if the type is one.
    pub(super) fn some(&mut self) -> ExpectedValue<'l> {
        if let ExpectedValue::Of(AbiLayout { kind: LayoutKind::Option(inner), payload, .. }) = self.wish
            && !matches!(inner.kind, LayoutKind::Option(_))
        {
            self.to.slots.put(self.at, [1]);
            self.at += *payload as usize;
            self.wish = ExpectedValue::Of(inner);
        }
        self.wish
    }

    fn scalar<E: Error>(mut self, token: ScalarToken<'_>) -> Result<(), E> {
        self.write(token).map_err(|error| self.to.refuse(error))
    }

    fn write(&mut self, token: ScalarToken<'_>) -> Result<(), ArgumentError> {
        if let (
            ExpectedValue::Null | ExpectedValue::Of(AbiLayout { kind: LayoutKind::Option(_), .. }),
            ScalarToken::Null,
        ) = (self.wish, token)
        {
            return Ok(());
        }
        let layout = match self.some() {
            ExpectedValue::Of(layout) => layout,
            ExpectedValue::Null => return Err(ArgumentError::got("null", token)),
            ExpectedValue::Flag(names) => return self.flag(names, token),
        };
        let (slots, at) = (&mut self.to.slots, self.at);
        match (&layout.kind, token) {
            (LayoutKind::String, ScalarToken::Text(text)) => slots.put_text(at, text)?,
            (LayoutKind::Bool, ScalarToken::Bool(value)) => slots.put(at, [u8::from(value)]),
            (LayoutKind::Char, ScalarToken::Text(text)) => {
                slots.put(at, u32::from(one_char(text)?).to_le_bytes())
            }
            (LayoutKind::Bytes, ScalarToken::Text(text)) => slots.put_base64(at, text)?,
            (LayoutKind::Signed(bits), token) => {
                slots.put_number(at, layout.size, signed(*bits, token)?.to_le_bytes());
            }
            (LayoutKind::Unsigned(bits), token) => {
                slots.put_number(at, layout.size, unsigned(*bits, token)?.to_le_bytes());
            }
            (LayoutKind::Float(bits), token) => match float(*bits, token)? {
                FloatValue::Narrow(number) => slots.put(at, number.to_le_bytes()),
                FloatValue::Wide(number) => slots.put(at, number.to_le_bytes()),
            },
            (LayoutKind::Enum(names), ScalarToken::Text(text)) => {
                slots.put_case(at, layout.size, one_of(names, text)?);
            }
            (LayoutKind::Variant(cases), ScalarToken::Text(text)) => self.case(cases, text)?,
            (LayoutKind::Option(_), token) => return Err(ArgumentError::got(SOME, token)),
            (kind, token) => return Err(ArgumentError::mismatch(kind, token)),
        }
        Ok(())
    }

    fn flag(&mut self, names: &[WitName], token: ScalarToken<'_>) -> Result<(), ArgumentError> {
        let ScalarToken::Text(text) = token else { return Err(ArgumentError::got("a string", token)) };
        let new = self.to.slots.put_flag(self.at, one_of(names, text)?);
        if new { Ok(()) } else { Err(ArgumentError::new("named twice")) }
    }

    /// Refuses an array or an object in a place that expects something else.
    pub(super) fn mismatch<E: Error>(self, token: ScalarToken<'_>) -> E {
        let error = match self.wish {
            ExpectedValue::Null => ArgumentError::got("null", token),
            ExpectedValue::Flag(_) => ArgumentError::got("a string", token),
            ExpectedValue::Of(AbiLayout { kind: LayoutKind::Option(_), .. }) => {
                ArgumentError::got(SOME, token)
            }
            ExpectedValue::Of(layout) => ArgumentError::mismatch(&layout.kind, token),
        };
        self.to.refuse(error)
    }

    fn list<'de, A: SeqAccess<'de>>(self, item: &'l AbiLayout, mut items: A) -> Result<(), A::Error> {
        let Self { to, at, .. } = self;
        let mark = to.slots.mark();
        let mut count = 0;
        loop {
            let place = to.slots.push(item.size).map_err(|error| to.refuse(error))?;
            match items.next_element_seed(ValueCursor::new(to, item, place)) {
                Ok(Some(())) => count += 1,
                Ok(None) => {
                    to.slots.drop_from(place);
                    return to.slots.end_list(at, mark, item.align, count).map_err(|error| to.refuse(error));
                }
                Err(error) => {
                    to.step(|| format!("[{count}]"));
                    return Err(error);
                }
            }
        }
    }

    fn tuple<'de, A>(self, parts: &'l [(u32, AbiLayout)], mut items: A) -> Result<(), A::Error>
    where
        A: SeqAccess<'de>,
    {
        for (index, (offset, part)) in parts.iter().enumerate() {
            let place = ValueCursor::new(self.to, part, self.at + *offset as usize);
            match items.next_element_seed(place) {
                Ok(Some(())) => {}
                Ok(None) => return Err(self.mismatch(ScalarToken::Array)),
                Err(error) => {
                    self.to.step(|| format!("[{index}]"));
                    return Err(error);
                }
            }
        }
        match items.next_element::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(self.mismatch(ScalarToken::Array)),
        }
    }

    fn flags<'de, A: SeqAccess<'de>>(self, names: &'l [WitName], mut items: A) -> Result<(), A::Error> {
        let Self { to, at, .. } = self;
        let mut count = 0;
        loop {
            match items.next_element_seed(ValueCursor { to: &mut *to, wish: ExpectedValue::Flag(names), at })
            {
                Ok(Some(())) => count += 1,
                Ok(None) => return Ok(()),
                Err(error) => {
                    to.step(|| format!("[{count}]"));
                    return Err(error);
                }
            }
        }
    }
}

/// Returns the position of a name.
fn one_of(names: &[WitName], text: &str) -> Result<usize, ArgumentError> {
    names.iter().position(|name| name.json() == text).ok_or_else(|| {
        let known: Vec<_> = names.iter().map(WitName::json).collect();
        ArgumentError::new(format!("expected one of {}", known.join(", ")))
    })
}

/// The expected form of an option in an option.
const SOME: &str = "null or {\"some\": ..}";

impl<'de> DeserializeSeed<'de> for ValueCursor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueCursor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.scalar(ScalarToken::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(ScalarToken::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(ScalarToken::Signed(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(ScalarToken::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(ScalarToken::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(ScalarToken::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, items: A) -> Result<(), A::Error> {
        match self.some() {
            ExpectedValue::Of(AbiLayout { kind: LayoutKind::List(item), .. }) => self.list(item, items),
            ExpectedValue::Of(AbiLayout { kind: LayoutKind::Tuple(parts), .. }) => self.tuple(parts, items),
            ExpectedValue::Of(AbiLayout { kind: LayoutKind::Flags(names), .. }) => self.flags(names, items),
            _ => Err(self.mismatch(ScalarToken::Array)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<(), A::Error> {
        self.object(entries)
    }
}
