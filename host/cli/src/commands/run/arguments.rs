//! The arguments of an action on the command line, each parsed as the type of its input.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::strict_json;
use cofferdam_model::action::{ActionInput, InputKind};
use serde_json::{Map, Value};

/// Divides `ARG=VALUE`.
pub(in crate::commands) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as ARG=VALUE, like branch=main".to_owned()),
    }
}

/// Returns the arguments of `whole` and `pairs`. A value that does not fit its input stays a text, and the action reports
/// the expected type.
pub(in crate::commands) fn arguments(
    inputs: &[ActionInput],
    whole: Option<Value>,
    pairs: &[(String, String)],
) -> Result<Value, HostError> {
    let whole = whole.unwrap_or_else(|| Value::Object(Map::new()));
    if pairs.is_empty() {
        return Ok(whole);
    }
    let wrong = |message: String, hint: &str| {
        HostError::new(HostErrorKind::Validation, message).with_hint(hint.to_owned())
    };
    let Value::Object(mut arguments) = whole else {
        let message = "What --args has is not a JSON object, so that nothing can be added to it.";
        return Err(wrong(message.to_owned(), "Leave out the others, or make it an object."));
    };
    for (name, text) in pairs {
        let kind = inputs.iter().find(|input| input.name() == name).map(ActionInput::kind);
        let value = match kind {
            None | Some(InputKind::String) => text.as_str().into(),
            Some(_) => match strict_json::parse(text.as_bytes()) {
                Ok(value) => value,
                Err(_) => text.as_str().into(),
            },
        };
        if arguments.insert(name.clone(), value).is_some() {
            let message = format!("The argument `{}` is given twice.", sanitize_line(name, 100));
            return Err(wrong(message, "Give it once."));
        }
    }
    Ok(arguments.into())
}
