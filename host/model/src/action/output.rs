//! The `[output]` of an action: a JSON Schema, compiled once. The output is checked against it before it is
//! returned.

use std::fmt;

use cofferdam_core::document::{Diagnostics, InvalidValue, PathSegment};
use cofferdam_core::failure::sanitize_line;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// The most problems that are reported for an output.
const MAX_PROBLEMS: usize = 8;

/// The schema, ready to check with.
#[derive(Clone)]
pub struct OutputSchema {
    schema: Value,
    validator: Validator,
}

/// An output that violates the action's `[output]`. It names positions and no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct OutputError(Vec<String>);

impl OutputSchema {
    /// Compiles the schema under `[output]` and reports its problems. Nothing is fetched for it, and its
    /// patterns are matched in linear time.
    pub(super) fn compile(schema: Value, findings: &mut Diagnostics<'_>) -> Option<Self> {
        if let Some(path) = reference(&schema, &mut Vec::new()) {
            let message = "a schema refers to nothing: `$ref` and its like are not known here";
            refuse(findings, &path, InvalidValue::new(message, "write the schema out at this place"));
            return None;
        }
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex()).offline();
        match options.build(&schema) {
            Ok(validator) => Some(Self { schema, validator }),
            Err(error) => {
                let message = format!("this is not JSON Schema: {}", error.masked());
                let path = pointer(error.instance_path().as_str());
                refuse(findings, &path, InvalidValue::new(message, "correct it, or remove [output]"));
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
    /// The value does not fit: up to eight positions.
    pub fn check(&self, value: &Value) -> Result<(), OutputError> {
        if self.validator.is_valid(value) {
            return Ok(());
        }
        let problem = |error: jsonschema::ValidationError<'_>| {
            let at = sanitize_line(error.instance_path().as_str(), 200);
            let rule = sanitize_line(error.schema_path().as_str(), 200);
            format!("output{at} is not as [output]{rule} says")
        };
        Err(OutputError(self.validator.iter_errors(value).take(MAX_PROBLEMS).map(problem).collect()))
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Output").field(&self.schema).finish()
    }
}

impl PartialEq for OutputSchema {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

/// Returns the position of a schema that refers to another, or to itself: references can be circular, and a
/// checker would not terminate.
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

fn refuse(findings: &mut Diagnostics<'_>, path: &[String], refused: InvalidValue) {
    let keys = path.iter().map(|part| match part.parse() {
        Ok(at) => PathSegment::At(at),
        Err(_) => PathSegment::Name(part),
    });
    let keys: Vec<_> = std::iter::once(PathSegment::Name("output")).chain(keys).collect();
    findings.refuse(&keys, &refused);
}
