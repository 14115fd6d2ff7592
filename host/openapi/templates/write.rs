//! Writes the JSON of requests.

use cofferdam_guest::Failure;
use serde_json::{Map, Number, Value};

/// A value that was written.
pub(crate) type Written = Result<Value, Failure>;

pub(crate) fn boolean(value: &bool) -> Written {
    Ok(Value::Bool(*value))
}

pub(crate) fn s32(value: &i32) -> Written {
    Ok(Value::from(*value))
}

pub(crate) fn s64(value: &i64) -> Written {
    Ok(Value::from(*value))
}

pub(crate) fn u32(value: &u32) -> Written {
    Ok(Value::from(*value))
}

pub(crate) fn u64(value: &u64) -> Written {
    Ok(Value::from(*value))
}

pub(crate) fn f64(value: &f64) -> Written {
    let number = Number::from_f64(*value).map(Value::Number);
    number.ok_or_else(|| Failure::invalid_input("", "a number must be finite"))
}

pub(crate) fn text(value: &String) -> Written {
    Ok(Value::String(value.clone()))
}

/// Takes a JSON text for the value in it.
pub(crate) fn json(value: &String) -> Written {
    serde_json::from_str(value).map_err(|error| {
        let failure = Failure::invalid_input("", "an argument that is JSON text must be valid JSON");
        failure.with_detail(error.to_string())
    })
}

pub(crate) fn list<T>(items: &[T], item: impl Fn(&T) -> Written) -> Written {
    items.iter().map(item).collect::<Result<_, _>>().map(Value::Array)
}

pub(crate) fn map<T>(pairs: &[(String, T)], item: impl Fn(&T) -> Written) -> Written {
    let mut object = Object::default();
    for (name, value) in pairs {
        if object.0.contains_key(name) {
            return Err(Failure::invalid_input("", "no name may be in a map twice"));
        }
        object.put(name, item(value)?);
    }
    Ok(object.finish())
}

pub(crate) fn nullable<T>(value: &Option<T>, item: impl Fn(&T) -> Written) -> Written {
    value.as_ref().map_or(Ok(Value::Null), item)
}

/// Adds the field that says of which type an object is.
pub(crate) fn tagged(value: Value, name: &str, tag: &str) -> Written {
    let Value::Object(mut fields) = value else {
        return Err(Failure::invalid_input("", "a JSON text must be an object here"));
    };
    fields.insert(name.to_owned(), Value::String(tag.to_owned()));
    Ok(Value::Object(fields))
}

/// An object being written.
#[derive(Default)]
pub(crate) struct Object(Map<String, Value>);

impl Object {
    pub(crate) fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    pub(crate) fn finish(self) -> Value {
        Value::Object(self.0)
    }
}
