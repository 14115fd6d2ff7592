//! Converts a part of a TOML document to JSON, for documents that contain arguments of calls.

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use super::error::InvalidValue;

/// Converts the table to an object. A value without a JSON form is rejected, with a description of how to
/// write it.
pub(super) fn object(table: &DeTable<'_>) -> Result<Map<String, Value>, InvalidValue> {
    let fields = table.iter().map(|(key, field)| Ok((key.get_ref().to_string(), value(field.get_ref())?)));
    fields.collect()
}

pub(super) fn value(toml: &DeValue<'_>) -> Result<Value, InvalidValue> {
    Ok(match toml {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Integer(value) => integer(value.as_str(), value.radix())?,
        DeValue::Float(float) => fraction(float.as_str())?,
        DeValue::Array(items) => {
            items.iter().map(|item| value(item.get_ref())).collect::<Result<Vec<_>, _>>()?.into()
        }
        DeValue::Table(table) => object(table)?.into(),
        DeValue::Datetime(_) => {
            return Err(InvalidValue::new("JSON has no dates", "put it in double quotes"));
        }
    })
}

fn integer(digits: &str, radix: u32) -> Result<Value, InvalidValue> {
    let digits = digits.replace('_', "");
    let number = u64::from_str_radix(&digits, radix).map(Value::from);
    let number = number.or_else(|_| i64::from_str_radix(&digits, radix).map(Value::from));
    number.map_err(|_| InvalidValue::new("a number of more than 64 bits", "put it in double quotes"))
}

fn fraction(text: &str) -> Result<Value, InvalidValue> {
    let number = text.replace('_', "").parse::<f64>().ok().and_then(Number::from_f64);
    let fix = "write \"NaN\", \"Infinity\" or \"-Infinity\"";
    number.map(Value::Number).ok_or_else(|| InvalidValue::new("JSON has no such number", fix))
}
