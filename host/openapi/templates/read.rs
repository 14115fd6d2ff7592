//! Reads the JSON of answers.

use cofferdam_guest::Failure;
use serde_json::{Map, Value};

/// A place of an answer that is not as the service's description says.
pub(crate) struct Mismatch {
    path: String,
    expected: &'static str,
}

/// A value that was read.
pub(crate) type Read<T> = Result<T, Mismatch>;

impl Mismatch {
    pub(crate) fn new(expected: &'static str) -> Self {
        Self {
            path: String::new(),
            expected,
        }
    }

    /// Says in which field it is.
    fn inside(mut self, name: &str) -> Self {
        self.path = format!("/{name}{}", self.path);
        self
    }

    /// Makes a failure of it. The request was answered: its effect, if it has one, took place.
    pub(crate) fn into_failure(self, status: u16) -> Failure {
        let Self { path, expected } = self;
        let place = if path.is_empty() { "/" } else { &path };
        let message = format!("The service answered with status {status}, but its answer is not as described.");
        Failure::failed("unexpected_answer", message).with_detail(format!("at {place}: expected {expected}"))
    }
}

#[inline(never)]
pub(crate) fn boolean(value: &Value) -> Read<bool> {
    value.as_bool().ok_or(Mismatch::new("true or false"))
}

/// Reads a whole number, also one that is written with a zero fraction.
fn whole(value: &Value) -> Option<i128> {
    if let Some(number) = value.as_i64() {
        return Some(number.into());
    }
    if let Some(number) = value.as_u64() {
        return Some(number.into());
    }
    let number = value.as_f64()?;
    (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i128)
}

fn integer<T: TryFrom<i128>>(value: &Value) -> Read<T> {
    let number = whole(value).and_then(|number| T::try_from(number).ok());
    number.ok_or(Mismatch::new("a whole number in range"))
}

#[inline(never)]
pub(crate) fn s32(value: &Value) -> Read<i32> {
    integer(value)
}

#[inline(never)]
pub(crate) fn s64(value: &Value) -> Read<i64> {
    integer(value)
}

#[inline(never)]
pub(crate) fn u32(value: &Value) -> Read<u32> {
    integer(value)
}

#[inline(never)]
pub(crate) fn u64(value: &Value) -> Read<u64> {
    integer(value)
}

#[inline(never)]
pub(crate) fn f64(value: &Value) -> Read<f64> {
    value.as_f64().ok_or(Mismatch::new("a number"))
}

#[inline(never)]
pub(crate) fn text(value: &Value) -> Read<String> {
    let text = value.as_str().map(ToOwned::to_owned);
    text.ok_or(Mismatch::new("a text"))
}

/// Reads any value, as JSON text.
#[inline(never)]
pub(crate) fn json(value: &Value) -> Read<String> {
    Ok(value.to_string())
}

pub(crate) fn list<T>(value: &Value, item: impl Fn(&Value) -> Read<T>) -> Read<Vec<T>> {
    let items = value.as_array().ok_or(Mismatch::new("a list"))?;
    let read = |(at, value)| item(value).map_err(|wrong| wrong.inside(&format!("{at}")));
    items.iter().enumerate().map(read).collect()
}

pub(crate) fn map<T>(value: &Value, item: impl Fn(&Value) -> Read<T>) -> Read<Vec<(String, T)>> {
    let fields = value.as_object().ok_or(Mismatch::new("an object"))?;
    let read = |(name, value): (&String, &Value)| {
        let value = item(value).map_err(|wrong| wrong.inside(name))?;
        Ok((name.clone(), value))
    };
    fields.iter().map(read).collect()
}

pub(crate) fn nullable<T>(value: &Value, item: impl Fn(&Value) -> Read<T>) -> Read<Option<T>> {
    if value.is_null() {
        return Ok(None);
    }
    item(value).map(Some)
}

/// The fields of an object. The first that is wrong is remembered, and reading goes on with nothing in its place: code
/// that stops at each field would be several times as large.
pub(crate) struct Fields<'v> {
    fields: &'v Map<String, Value>,
    wrong: Option<Mismatch>,
}

impl<'v> Fields<'v> {
    pub(crate) fn of(value: &'v Value) -> Read<Self> {
        let fields = value.as_object().ok_or(Mismatch::new("an object"))?;
        Ok(Self { fields, wrong: None })
    }

    fn get(&self, name: &str) -> &'v Value {
        self.fields.get(name).unwrap_or(&Value::Null)
    }

    /// Reads a field that is always there, of a type without an empty value.
    pub(crate) fn whole<T>(&self, name: &str, item: impl Fn(&Value) -> Read<T>) -> Read<T> {
        item(self.get(name)).map_err(|wrong| wrong.inside(name))
    }

    /// Reads a field that is always there.
    pub(crate) fn required<T: Default>(&mut self, name: &str, item: impl Fn(&Value) -> Read<T>) -> T {
        match item(self.get(name)) {
            Ok(value) => value,
            Err(wrong) => {
                self.remember(name, wrong);
                T::default()
            }
        }
    }

    /// Reads a field that may be absent or null.
    pub(crate) fn optional<T>(&mut self, name: &str, item: impl Fn(&Value) -> Read<T>) -> Option<T> {
        match self.get(name) {
            Value::Null => None,
            value => match item(value) {
                Ok(value) => Some(value),
                Err(wrong) => {
                    self.remember(name, wrong);
                    None
                }
            },
        }
    }

    /// Reads the field that says of which type the object is.
    pub(crate) fn tag(&self, name: &str) -> Read<&'v str> {
        let tag = self.get(name).as_str();
        tag.ok_or(Mismatch::new("a text that names a type").inside(name))
    }

    #[inline(never)]
    fn remember(&mut self, name: &str, wrong: Mismatch) {
        if self.wrong.is_none() {
            self.wrong = Some(wrong.inside(name));
        }
    }

    /// Returns what was made of the fields, unless one was wrong.
    pub(crate) fn finish<T>(self, whole: T) -> Read<T> {
        match self.wrong {
            None => Ok(whole),
            Some(wrong) => Err(wrong),
        }
    }
}
