//! The objects in a caller's arguments: records, variants with a payload, results, and options in options.

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};

use super::argument_error::{ArgumentError, unknown_field, wanted, wanted_cases};
use super::layout::{AbiLayout, LayoutCase, LayoutKind, LayoutPart, discriminant};
use super::scalars::ScalarToken;
use super::visit::{ExpectedValue, ValueCursor};

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
        let place = ValueCursor { to: &mut *self.to, wish, at: payload_at };
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
