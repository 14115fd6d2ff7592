//! The walk over the caller's arguments: each JSON value is checked against its type and written to its slot.

use cofferdam_model::package::WitName;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::encode::{ArgumentEncoder, ArgumentError, unknown_field, wanted, wanted_cases};
use super::layout::{AbiLayout, LayoutCase, LayoutKind, LayoutPart, discriminant};

/// The destination of a value, and its expected type.
pub(super) struct ValueCursor<'e, 'l> {
    pub(super) to: &'e mut ArgumentEncoder,
    pub(super) expected: ExpectedValue<'l>,
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
    pub(super) fn new(to: &'e mut ArgumentEncoder, layout: &'l AbiLayout, at: usize) -> Self {
        Self { to, expected: ExpectedValue::Of(layout), at }
    }

    /// Returns the destination of a value that is present: inside an option, if the type is one.
    pub(super) fn some(&mut self) -> ExpectedValue<'l> {
        if let ExpectedValue::Of(AbiLayout { kind: LayoutKind::Option(inner), payload, .. }) = self.expected
            && !matches!(inner.kind, LayoutKind::Option(_))
        {
            self.to.slots.put(self.at, [1]);
            self.at += *payload as usize;
            self.expected = ExpectedValue::Of(inner);
        }
        self.expected
    }

    fn scalar<E: Error>(mut self, token: ScalarToken<'_>) -> Result<(), E> {
        self.write(token).map_err(|error| self.to.refuse(error))
    }

    fn write(&mut self, token: ScalarToken<'_>) -> Result<(), ArgumentError> {
        if let (
            ExpectedValue::Null | ExpectedValue::Of(AbiLayout { kind: LayoutKind::Option(_), .. }),
            ScalarToken::Null,
        ) = (self.expected, token)
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
        let error = match self.expected {
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
            match items.next_element_seed(ValueCursor {
                to: &mut *to,
                expected: ExpectedValue::Flag(names),
                at,
            }) {
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

impl<'l> ValueCursor<'_, 'l> {
    /// Reads an object of any kind.
    pub(super) fn object<'de, A: MapAccess<'de>>(mut self, entries: A) -> Result<(), A::Error> {
        let ExpectedValue::Of(layout) = self.some() else { return Err(self.mismatch(ScalarToken::Object)) };
        let payload_at = self.at + layout.payload as usize;
        match &layout.kind {
            LayoutKind::Record(parts) => self.record(parts, entries),
            LayoutKind::Variant(cases) => self.variant(cases, payload_at, entries),
            LayoutKind::Result(ok, err) => self.result([ok.as_deref(), err.as_deref()], payload_at, entries),
            LayoutKind::Option(inner) => self.some_of(inner, payload_at, entries),
            _ => Err(self.mismatch(ScalarToken::Object)),
        }
    }

    fn record<'de, A: MapAccess<'de>>(self, parts: &'l [LayoutPart], mut entries: A) -> Result<(), A::Error> {
        let Self { to, at, .. } = self;
        let mut seen = SeenFields::default();
        // Callers mostly keep the order of the type, and then no lookup is needed.
        let mut next = 0;
        while let Some(found) = entries.next_key_seed(FieldKey(|key: &str| find(parts, next, key)))? {
            let (index, part) = found.map_err(|error| to.refuse(error))?;
            let step = || format!(".{}", part.name.json());
            if !seen.insert(index) {
                return Err(to.refuse(ArgumentError::new("given twice").under(step())));
            }
            let place = ValueCursor::new(to, &part.layout, at + part.offset as usize);
            entries.next_value_seed(place).inspect_err(|_| to.step(step))?;
            next = index + 1;
        }
        if seen.count == parts.len() {
            return Ok(());
        }
        let missing = |(index, part): &(usize, &LayoutPart)| {
            !matches!(part.layout.kind, LayoutKind::Option(_)) && !seen.contains(*index)
        };
        match parts.iter().enumerate().find(missing) {
            None => Ok(()),
            Some((_, part)) => {
                let error = ArgumentError::new(format!("missing; expected {}", wanted(&part.layout.kind)));
                Err(to.refuse(error.under(format!(".{}", part.name.json()))))
            }
        }
    }

    fn variant<'de, A>(
        self,
        cases: &'l [LayoutCase],
        payload_at: usize,
        mut entries: A,
    ) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
    {
        let find = |key: &str| cases.iter().enumerate().find(|(_, case)| case.name.json() == key);
        let Some(found) = entries.next_key_seed(FieldKey(find))? else {
            return Err(self.mismatch(ScalarToken::Object));
        };
        let Some((index, case)) = found else {
            return Err(self.to.refuse(unknown_case(cases)));
        };
        let name = case.name.json();
        let Some(payload) = &case.payload else {
            let error = ArgumentError::new(format!("takes no payload; write it as \"{name}\""));
            return Err(self.to.refuse(error.under(format!(".{name}"))));
        };
        self.to.slots.put_case(self.at, discriminant(cases.len()), index);
        let place = ValueCursor::new(self.to, payload, payload_at);
        entries.next_value_seed(place).inspect_err(|_| self.to.step(|| format!(".{name}")))?;
        match more(&mut entries)? {
            false => Ok(()),
            true => Err(self.mismatch(ScalarToken::Object)),
        }
    }

    /// A variant's case by its name alone.
    pub(super) fn case(&mut self, cases: &[LayoutCase], name: &str) -> Result<(), ArgumentError> {
        let found = cases.iter().enumerate().find(|(_, case)| case.name.json() == name);
        let (index, case) = found.ok_or_else(|| unknown_case(cases))?;
        if let Some(payload) = &case.payload {
            let error = ArgumentError::new(format!("missing payload; expected {}", wanted(&payload.kind)));
            return Err(error.under(format!(".{name}")));
        }
        self.to.slots.put_case(self.at, discriminant(cases.len()), index);
        Ok(())
    }

    fn result<'de, A>(
        self,
        [ok, err]: [Option<&'l AbiLayout>; 2],
        payload_at: usize,
        mut entries: A,
    ) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
    {
        let side = |key: &str| match key {
            "ok" => Some((0, ".ok", ok)),
            "err" => Some((1, ".err", err)),
            _ => None,
        };
        let wrong = || ArgumentError::new("expected {\"ok\": ..} or {\"err\": ..}");
        let Some(Some((case, step, payload))) = entries.next_key_seed(FieldKey(side))? else {
            return Err(self.to.refuse(wrong()));
        };
        self.to.slots.put(self.at, [case]);
        let wish = payload.map_or(ExpectedValue::Null, ExpectedValue::Of);
        let place = ValueCursor { to: &mut *self.to, expected: wish, at: payload_at };
        entries.next_value_seed(place).inspect_err(|_| self.to.step(|| step.to_owned()))?;
        match more(&mut entries)? {
            false => Ok(()),
            true => Err(self.to.refuse(wrong())),
        }
    }

    /// An option directly inside an option is wrapped, so that both nones can be distinguished.
    fn some_of<'de, A>(self, inner: &'l AbiLayout, payload_at: usize, mut entries: A) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
    {
        let Some(true) = entries.next_key_seed(FieldKey(|key: &str| key == "some"))? else {
            return Err(self.mismatch(ScalarToken::Object));
        };
        self.to.slots.put(self.at, [1]);
        entries.next_value_seed(ValueCursor::new(self.to, inner, payload_at))?;
        match more(&mut entries)? {
            false => Ok(()),
            true => Err(self.mismatch(ScalarToken::Object)),
        }
    }
}

fn unknown_case(cases: &[LayoutCase]) -> ArgumentError {
    ArgumentError::new(format!("expected {}", wanted_cases(cases)))
}

/// Returns the field with this name, which is probably the next one.
fn find<'l>(
    parts: &'l [LayoutPart],
    next: usize,
    key: &str,
) -> Result<(usize, &'l LayoutPart), ArgumentError> {
    if let Some(part) = parts.get(next).filter(|part| part.name.json() == key) {
        return Ok((next, part));
    }
    let found = parts.iter().enumerate().find(|(_, part)| part.name.json() == key);
    found.ok_or_else(|| unknown_field(key, parts.iter().map(|part| part.name.json())))
}

/// Returns true if there is another entry.
fn more<'de, A: MapAccess<'de>>(entries: &mut A) -> Result<bool, A::Error> {
    Ok(entries.next_key_seed(FieldKey(|_: &str| ()))?.is_some())
}

/// The set of fields that were given.
#[derive(Default)]
struct SeenFields {
    count: usize,
    first: u64,
    /// The fields from the 64th on.
    rest: Vec<usize>,
}

impl SeenFields {
    fn contains(&self, index: usize) -> bool {
        match index {
            0..64 => self.first >> index & 1 == 1,
            _ => self.rest.contains(&index),
        }
    }

    /// Adds a field; returns false if it is already in the set.
    fn insert(&mut self, index: usize) -> bool {
        if self.contains(index) {
            return false;
        }
        match index {
            0..64 => self.first |= 1 << index,
            _ => self.rest.push(index),
        }
        self.count += 1;
        true
    }
}

/// An entry's name, converted as it is read.
struct FieldKey<F>(F);

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for FieldKey<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> T> Visitor<'_> for FieldKey<F> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<T, E> {
        Ok((self.0)(key))
    }
}

/// A JSON value as it is read: a complete scalar, or the start of an array or an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScalarToken<'t> {
    Null,
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'t str),
    Array,
    Object,
}

impl ScalarToken<'_> {
    /// Describes the value in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            ScalarToken::Null => "null",
            ScalarToken::Bool(_) => "a boolean",
            ScalarToken::Signed(_) | ScalarToken::Unsigned(_) | ScalarToken::Float(_) => "a number",
            ScalarToken::Text(_) => "a string",
            ScalarToken::Array => "an array",
            ScalarToken::Object => "an object",
        }
    }
}

/// Returns an integer of so many bits.
pub(super) fn signed(bits: u8, token: ScalarToken<'_>) -> Result<i64, ArgumentError> {
    let number = match token {
        ScalarToken::Signed(number) => Some(number),
        ScalarToken::Unsigned(number) => i64::try_from(number).ok(),
        ScalarToken::Float(_) => None,
        ScalarToken::Text(text) if bits == 64 => integer_digits(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(&LayoutKind::Signed(bits), other)),
    };
    let fits = |number: &i64| match bits {
        8 => i8::try_from(*number).is_ok(),
        16 => i16::try_from(*number).is_ok(),
        32 => i32::try_from(*number).is_ok(),
        _ => true,
    };
    number
        .filter(fits)
        .ok_or_else(|| ArgumentError::new(format!("expected a whole number that fits s{bits}")))
}

/// Returns an unsigned integer of so many bits.
pub(super) fn unsigned(bits: u8, token: ScalarToken<'_>) -> Result<u64, ArgumentError> {
    let number = match token {
        ScalarToken::Unsigned(number) => Some(number),
        ScalarToken::Signed(number) => u64::try_from(number).ok(),
        ScalarToken::Float(_) => None,
        ScalarToken::Text(text) if bits == 64 => integer_digits(text).and_then(|text| text.parse().ok()),
        other => return Err(ArgumentError::mismatch(&LayoutKind::Unsigned(bits), other)),
    };
    let fits = |number: &u64| bits == 64 || *number >> bits == 0;
    number
        .filter(fits)
        .ok_or_else(|| ArgumentError::new(format!("expected a whole number that fits u{bits}")))
}

/// Returns text that consists of digits with at most a minus: `parse` alone would also accept a plus sign.
fn integer_digits(text: &str) -> Option<&str> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(text)
}

/// A number of either width.
pub(super) enum FloatValue {
    Narrow(f32),
    Wide(f64),
}

#[expect(
    clippy::cast_precision_loss,
    reason = "JSON has one kind of number: an integer is the nearest float"
)]
pub(super) fn float(bits: u8, token: ScalarToken<'_>) -> Result<FloatValue, ArgumentError> {
    let number = match token {
        ScalarToken::Float(number) => Some(number),
        ScalarToken::Signed(number) => Some(number as f64),
        ScalarToken::Unsigned(number) => Some(number as f64),
        ScalarToken::Text("NaN") => Some(f64::NAN),
        ScalarToken::Text("Infinity") => Some(f64::INFINITY),
        ScalarToken::Text("-Infinity") => Some(f64::NEG_INFINITY),
        _ => None,
    };
    let wrong = || ArgumentError::got("a number, \"NaN\", \"Infinity\" or \"-Infinity\"", token);
    let number = number.ok_or_else(wrong)?;
    if bits == 64 {
        return Ok(FloatValue::Wide(number));
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked on the next line; f32 rounds by intent")]
    let narrow = number as f32;
    if narrow.is_infinite() && number.is_finite() {
        return Err(ArgumentError::new("expected a number that fits f32"));
    }
    Ok(FloatValue::Narrow(narrow))
}

pub(super) fn one_char(text: &str) -> Result<char, ArgumentError> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) => Ok(c),
        _ => Err(ArgumentError::new("expected a string of exactly one character")),
    }
}
