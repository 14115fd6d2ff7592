//! Encodes structures as forms: nested fields are written with brackets, as in `card[expiry][year]=2030`.

use serde::Serialize;
use serde_json::Value;

use super::Error;

/// Returns the pairs of a structure. Fields that are null are left out. A list repeats its name with empty
/// brackets. A list of structures has numbers in the brackets, so that the fields of an item stay together.
pub(super) fn pairs(value: &(impl Serialize + ?Sized)) -> Result<Vec<(String, String)>, Error> {
    let invalid = |why: String| Error::Invalid(format!("the body is no form: {why}"));
    let value = serde_json::to_value(value).map_err(|error| invalid(error.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(invalid("it has no fields".to_owned()));
    };
    let mut pairs = Vec::new();
    for (name, value) in fields {
        add(&mut pairs, name, value);
    }
    Ok(pairs)
}

fn add(pairs: &mut Vec<(String, String)>, name: String, value: Value) {
    match value {
        Value::Null => {}
        Value::Bool(truth) => pairs.push((name, truth.to_string())),
        Value::Number(number) => pairs.push((name, number.to_string())),
        Value::String(text) => pairs.push((name, text)),
        Value::Array(items) => {
            let numbered = items.iter().any(|item| item.is_object() || item.is_array());
            for (at, item) in items.into_iter().enumerate() {
                let inner = if numbered { format!("{name}[{at}]") } else { format!("{name}[]") };
                add(pairs, inner, item);
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                add(pairs, format!("{name}[{field}]"), value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(value: &Value) -> Option<String> {
        let pairs = pairs(value).ok()?;
        Some(pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&"))
    }

    #[test]
    fn nested_fields_use_brackets() {
        for (value, expected) in [
            (
                serde_json::json!({"amount": 5, "capture": false, "note": null}),
                Some("amount=5&capture=false"),
            ),
            (serde_json::json!({"a": {"b": {"c": "d"}}}), Some("a[b][c]=d")),
            (serde_json::json!({"types": ["card", "link"]}), Some("types[]=card&types[]=link")),
            (
                serde_json::json!({"items": [{"id": 1, "n": 2}, {"id": 3}]}),
                Some("items[0][id]=1&items[0][n]=2&items[1][id]=3"),
            ),
            (serde_json::json!({"empty": [], "none": {}}), Some("")),
            (serde_json::json!([1]), None),
            (serde_json::json!("text"), None),
        ] {
            assert_eq!(form(&value).as_deref(), expected, "{value}");
        }
    }
}
