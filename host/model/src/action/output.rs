//! The `[output]` of an action: a JSON Schema, compiled once, that its output is held against before anybody hears of it.

use std::fmt;

use cofferdam_core::document::{Findings, Key, Refused};
use cofferdam_core::failure::safe_line;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Most that is told of an output that does not fit.
const MAX_PROBLEMS: usize = 8;

/// The schema, ready to check with.
#[derive(Clone)]
pub struct Output {
    schema: Value,
    validator: Validator,
}

/// An output that is not as the action's `[output]` says. It names places and no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct OutputError(Vec<String>);

impl Output {
    /// Compiles the schema that stands under `[output]`; what is wrong with it is reported. Nothing is fetched for it,
    /// and its patterns are matched in linear time.
    pub(super) fn compile(schema: Value, findings: &mut Findings<'_>) -> Option<Self> {
        if let Some(path) = reference(&schema, &mut Vec::new()) {
            let message = "a schema refers to nothing: `$ref` and its like are not known here";
            refuse(findings, &path, Refused::new(message, "write the schema out at this place"));
            return None;
        }
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex()).offline();
        match options.build(&schema) {
            Ok(validator) => Some(Self { schema, validator }),
            Err(error) => {
                let message = format!("this is not JSON Schema: {}", error.masked());
                let path = pointer(error.instance_path().as_str());
                refuse(findings, &path, Refused::new(message, "correct it, or remove [output]"));
                None
            }
        }
    }

    /// The schema as JSON.
    #[must_use]
    pub fn schema(&self) -> &Value {
        &self.schema
    }

    /// Checks a value.
    ///
    /// # Errors
    /// Where it does not fit, up to eight places.
    pub fn check(&self, value: &Value) -> Result<(), OutputError> {
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let problem = |error: jsonschema::ValidationError<'_>| {
            let at = safe_line(error.instance_path().as_str(), 200);
            let rule = safe_line(error.schema_path().as_str(), 200);
            format!("output{at} is not as [output]{rule} says")
        };
        Err(OutputError(self.validator.iter_errors(value).take(MAX_PROBLEMS).map(problem).collect()))
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Output").field(&self.schema).finish()
    }
}

impl PartialEq for Output {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

/// Where a schema refers to another, or to itself: references can go round in circles, and a checker with them.
fn reference(schema: &Value, path: &mut Vec<String>) -> Option<Vec<String>> {
    let mut inside = |name: String, value: &Value| {
        path.push(name);
        let found = reference(value, path);
        path.pop();
        found
    };
    match schema {
        Value::Array(items) => items.iter().zip(0..).find_map(|(item, at)| inside(format!("{at}"), item)),
        Value::Object(fields) => {
            if let Some((name, _)) = fields.iter().find(|(name, value)| {
                matches!(name.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef") && value.is_string()
            }) {
                path.push(name.clone());
                return Some(path.clone());
            }
            fields.iter().find_map(|(name, field)| inside(name.clone(), field))
        }
        _ => None,
    }
}

/// The segments of a JSON Pointer.
fn pointer(text: &str) -> Vec<String> {
    text.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect()
}

fn refuse(findings: &mut Findings<'_>, path: &[String], refused: Refused) {
    let keys = path.iter().map(|part| match part.parse() {
        Ok(at) => Key::At(at),
        Err(_) => Key::Name(part),
    });
    let keys: Vec<_> = std::iter::once(Key::Name("output")).chain(keys).collect();
    findings.refuse(&keys, &refused);
}
