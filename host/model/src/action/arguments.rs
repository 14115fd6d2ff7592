//! A caller's arguments, checked against the declared inputs. All problems are reported at once, and a value
//! is never repeated.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::limits::PAYLOAD_BYTES;
use cofferdam_core::suggest;
use serde_json::{Map, Number, Value};

use super::file::{ActionInput, InputKind};

/// The most problems that are reported.
const MAX_PROBLEMS: usize = 20;

/// The largest whole number up to which a float says exactly which one it is.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns the arguments of an action with these inputs, with the defaults of missing ones; `null` counts as
/// missing.
///
/// # Errors
/// `validation`, with every problem.
pub(super) fn check_arguments(
    inputs: &[ActionInput],
    given: &Value,
) -> Result<Map<String, Value>, HostError> {
    let Value::Object(given) = given else {
        let message = "The arguments are no object.".to_owned();
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint(wanted(inputs)));
    };
    if serde_json::to_writer(ByteBudget(PAYLOAD_BYTES), given).is_err() {
        let message = "The arguments have more than 4 MiB.";
        return Err(HostError::new(HostErrorKind::Validation, message).with_hint("Give less."));
    }
    let mut problems = Vec::new();
    let mut args = Map::new();
    for input in inputs {
        match given.get(&input.name).filter(|value| !value.is_null()) {
            Some(value) => match input.check_value(value) {
                Ok(value) => drop(args.insert(input.name.clone(), value)),
                Err(why) => problems.push(format!("args.{}: {why}", input.name)),
            },
            None if input.required => problems.push(format!("args.{} is missing", input.name)),
            None => args.extend(input.default.clone().map(|default| (input.name.clone(), default))),
        }
    }
    for name in given.keys().filter(|name| !inputs.iter().any(|input| input.name == **name)) {
        let near = suggest::nearest(name, inputs.iter().map(|input| input.name.as_str()));
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        problems.push(format!("args.{} is no input of this action{near}", sanitize_line(name, 64)));
    }
    if problems.is_empty() {
        return Ok(args);
    }
    problems.truncate(MAX_PROBLEMS);
    let message = format!("The arguments do not fit: {}.", problems.join("; ").trim_end_matches('?'));
    Err(HostError::new(HostErrorKind::Validation, message)
        .with_hint(wanted(inputs))
        .detail("problems", problems))
}

/// Describes an action's inputs in a sentence.
fn wanted(inputs: &[ActionInput]) -> String {
    let each = |input: &ActionInput| {
        let optional = if input.required { "" } else { ", optional" };
        format!("{} ({}{optional})", input.name, input.kind.name())
    };
    match inputs {
        [] => "The action takes no arguments.".to_owned(),
        inputs => format!("The action takes {}.", inputs.iter().map(each).collect::<Vec<_>>().join(", ")),
    }
}

impl ActionInput {
    /// Returns the value, if it fits this input.
    pub(super) fn check_value(&self, value: &Value) -> Result<Value, String> {
        let fitting = self.kind.check_value(value)?;
        match fitting.as_str() {
            Some(text) if !self.choices.is_empty() && !self.choices.iter().any(|choice| choice == text) => {
                Err(format!("expected one of {}", self.choices.join(", ")))
            }
            _ => Ok(fitting),
        }
    }
}

impl InputKind {
    fn check_value(&self, value: &Value) -> Result<Value, String> {
        match (self, value) {
            (Self::String, Value::String(_))
            | (Self::Number, Value::Number(_))
            | (Self::Boolean, Value::Bool(_))
            | (Self::Object, Value::Object(_))
            | (Self::Array(None), Value::Array(_)) => Ok(value.clone()),
            (Self::Integer, Value::Number(number)) => to_integer(number).map(Value::Number),
            (Self::Array(Some(item)), Value::Array(items)) => {
                let items = items.iter().enumerate();
                let items = items
                    .map(|(at, value)| item.check_value(value).map_err(|why| format!("item {at}: {why}")));
                items.collect::<Result<Vec<_>, _>>().map(Value::from)
            }
            (_, other) => Err(format!("expected {}, got {}", self.expected(), words(other))),
        }
    }

    fn expected(&self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Integer => "a whole number",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Array(_) => "an array",
            Self::Object => "an object",
        }
    }
}

/// Converts to a whole number. A number with a zero fraction is accepted if it is exact.
fn to_integer(number: &Number) -> Result<Number, String> {
    if !number.is_f64() {
        return Ok(number.clone());
    }
    let float = number.as_f64().unwrap_or(f64::NAN);
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^53")]
    match float.fract() == 0.0 && float.abs() < EXACT {
        true => Ok(Number::from(float as i64)),
        false => Err("expected a whole number of at most 64 bits".to_owned()),
    }
}

fn words(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Takes so many bytes and keeps none.
struct ByteBudget(usize);

impl std::io::Write for ByteBudget {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
