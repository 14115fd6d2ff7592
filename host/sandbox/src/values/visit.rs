//! The walk over what a caller gives: each JSON value is checked against its type and written to its place.

use cofferdam_model::package::Name;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::argument_error::ArgumentError;
use super::encode::Encoder;
use super::layout::{Kind, Layout};
use super::scalars::{Float, Token, float, one_char, signed, unsigned};

/// Where a value goes, and what it has to be.
pub(super) struct Place<'e, 'l> {
    pub(super) to: &'e mut Encoder,
    pub(super) wish: Wish<'l>,
    pub(super) at: usize,
}

/// What a value has to be.
#[derive(Clone, Copy)]
pub(super) enum Wish<'l> {
    /// Of a type.
    Of(&'l Layout),
    /// `null`, since there is no type.
    Null,
    /// The name of a flag.
    Flag(&'l [Name]),
}

impl<'e, 'l> Place<'e, 'l> {
    pub(super) fn new(to: &'e mut Encoder, layout: &'l Layout, at: usize) -> Self {
        Self { to, wish: Wish::Of(layout), at }
    }

    /// Where a value that is there goes: into an option, if the type is one.
    pub(super) fn some(&mut self) -> Wish<'l> {
        if let Wish::Of(Layout { kind: Kind::Option(inner), payload, .. }) = self.wish
            && !matches!(inner.kind, Kind::Option(_))
        {
            self.to.slots.put(self.at, [1]);
            self.at += *payload as usize;
            self.wish = Wish::Of(inner);
        }
        self.wish
    }

    fn scalar<E: Error>(mut self, token: Token<'_>) -> Result<(), E> {
        self.write(token).map_err(|error| self.to.refuse(error))
    }

    fn write(&mut self, token: Token<'_>) -> Result<(), ArgumentError> {
        if let (Wish::Null | Wish::Of(Layout { kind: Kind::Option(_), .. }), Token::Null) = (self.wish, token)
        {
            return Ok(());
        }
        let layout = match self.some() {
            Wish::Of(layout) => layout,
            Wish::Null => return Err(ArgumentError::got("null", token)),
            Wish::Flag(names) => return self.flag(names, token),
        };
        let (slots, at) = (&mut self.to.slots, self.at);
        match (&layout.kind, token) {
            (Kind::String, Token::Text(text)) => slots.put_text(at, text)?,
            (Kind::Bool, Token::Bool(value)) => slots.put(at, [u8::from(value)]),
            (Kind::Char, Token::Text(text)) => slots.put(at, u32::from(one_char(text)?).to_le_bytes()),
            (Kind::Bytes, Token::Text(text)) => slots.put_base64(at, text)?,
            (Kind::Signed(bits), token) => {
                slots.put_number(at, layout.size, signed(*bits, token)?.to_le_bytes());
            }
            (Kind::Unsigned(bits), token) => {
                slots.put_number(at, layout.size, unsigned(*bits, token)?.to_le_bytes());
            }
            (Kind::Float(bits), token) => match float(*bits, token)? {
                Float::Narrow(number) => slots.put(at, number.to_le_bytes()),
                Float::Wide(number) => slots.put(at, number.to_le_bytes()),
            },
            (Kind::Enum(names), Token::Text(text)) => {
                slots.put_case(at, layout.size, one_of(names, text)?);
            }
            (Kind::Variant(cases), Token::Text(text)) => self.case(cases, text)?,
            (Kind::Option(_), token) => return Err(ArgumentError::got(SOME, token)),
            (kind, token) => return Err(ArgumentError::mismatch(kind, token)),
        }
        Ok(())
    }

    fn flag(&mut self, names: &[Name], token: Token<'_>) -> Result<(), ArgumentError> {
        let Token::Text(text) = token else { return Err(ArgumentError::got("a string", token)) };
        let new = self.to.slots.put_flag(self.at, one_of(names, text)?);
        if new { Ok(()) } else { Err(ArgumentError::new("named twice")) }
    }

    /// Refuses an array or an object where there should be something else.
    pub(super) fn mismatch<E: Error>(self, token: Token<'_>) -> E {
        let error = match self.wish {
            Wish::Null => ArgumentError::got("null", token),
            Wish::Flag(_) => ArgumentError::got("a string", token),
            Wish::Of(Layout { kind: Kind::Option(_), .. }) => ArgumentError::got(SOME, token),
            Wish::Of(layout) => ArgumentError::mismatch(&layout.kind, token),
        };
        self.to.refuse(error)
    }

    fn list<'de, A: SeqAccess<'de>>(self, item: &'l Layout, mut items: A) -> Result<(), A::Error> {
        let Self { to, at, .. } = self;
        let mark = to.slots.mark();
        let mut count = 0;
        loop {
            let place = to.slots.push(item.size).map_err(|error| to.refuse(error))?;
            match items.next_element_seed(Place::new(to, item, place)) {
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

    fn tuple<'de, A>(self, parts: &'l [(u32, Layout)], mut items: A) -> Result<(), A::Error>
    where
        A: SeqAccess<'de>,
    {
        for (index, (offset, part)) in parts.iter().enumerate() {
            let place = Place::new(self.to, part, self.at + *offset as usize);
            match items.next_element_seed(place) {
                Ok(Some(())) => {}
                Ok(None) => return Err(self.mismatch(Token::Array)),
                Err(error) => {
                    self.to.step(|| format!("[{index}]"));
                    return Err(error);
                }
            }
        }
        match items.next_element::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(self.mismatch(Token::Array)),
        }
    }

    fn flags<'de, A: SeqAccess<'de>>(self, names: &'l [Name], mut items: A) -> Result<(), A::Error> {
        let Self { to, at, .. } = self;
        let mut count = 0;
        loop {
            match items.next_element_seed(Place { to: &mut *to, wish: Wish::Flag(names), at }) {
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

/// The position of a name.
fn one_of(names: &[Name], text: &str) -> Result<usize, ArgumentError> {
    names.iter().position(|name| name.json() == text).ok_or_else(|| {
        let known: Vec<_> = names.iter().map(Name::json).collect();
        ArgumentError::new(format!("expected one of {}", known.join(", ")))
    })
}

/// What an option in an option is.
const SOME: &str = "null or {\"some\": ..}";

impl<'de> DeserializeSeed<'de> for Place<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.scalar(Token::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(Token::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(Token::Signed(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(Token::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(Token::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(Token::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, items: A) -> Result<(), A::Error> {
        match self.some() {
            Wish::Of(Layout { kind: Kind::List(item), .. }) => self.list(item, items),
            Wish::Of(Layout { kind: Kind::Tuple(parts), .. }) => self.tuple(parts, items),
            Wish::Of(Layout { kind: Kind::Flags(names), .. }) => self.flags(names, items),
            _ => Err(self.mismatch(Token::Array)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<(), A::Error> {
        self.object(entries)
    }
}
