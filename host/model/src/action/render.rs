//! Fills in templates: values are copied or written as text, and never read as templates.

use std::io;

use cofferdam_core::limits::PAYLOAD_BYTES;
use serde_json::{Map, Value};

use super::file::StepTarget;
use super::template::shown;
use super::template::{
    ReferenceRoot, ReferenceSegment, Template, TemplatePart, TemplateReference, TemplateValues,
};

/// The reason why a step's inputs could not be filled in. It names the reference, and never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RenderError(String);

impl StepTarget {
    /// The inputs, filled in, no longer than a call's arguments may be.
    ///
    /// An optional argument that is missing leaves out its field or item.
    ///
    /// # Errors
    /// A referenced value is missing or cannot be text, or the result is too long.
    pub fn render(&self, values: &TemplateValues<'_>) -> Result<Map<String, Value>, RenderError> {
        let mut room = SizeBudget(PAYLOAD_BYTES);
        table(&self.inputs, values, &mut room)
    }
}

impl Template {
    /// Returns the value of one template alone; none if it is an argument that was not given.
    ///
    /// # Errors
    /// As [`StepTarget::render`].
    pub fn render_value(&self, values: &TemplateValues<'_>) -> Result<Option<Value>, RenderError> {
        fill(self, values, &mut SizeBudget(PAYLOAD_BYTES))
    }
}

/// The bytes that may still be filled in: repeated references copy their value each time.
struct SizeBudget(usize);

impl SizeBudget {
    fn take(&mut self, bytes: usize) -> Result<(), RenderError> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(too_long)?;
        Ok(())
    }

    /// A copy of the value, if there is room for its text.
    fn copy(&mut self, value: &Value) -> Result<Value, RenderError> {
        serde_json::to_writer(&mut *self, value).map_err(|_| too_long())?;
        Ok(value.clone())
    }
}

impl io::Write for SizeBudget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes.len()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn too_long() -> RenderError {
    RenderError("the inputs have more than 4 MiB once they are filled in".to_owned())
}

fn table(
    fields: &[(String, Template)],
    values: &TemplateValues<'_>,
    room: &mut SizeBudget,
) -> Result<Map<String, Value>, RenderError> {
    let mut filled = Map::new();
    for (name, field) in fields {
        room.take(name.len())?;
        if let Some(value) = fill(field, values, room)? {
            filled.insert(name.clone(), value);
        }
    }
    Ok(filled)
}

/// Returns the value; none if it is an argument that was not given.
fn fill(
    template: &Template,
    values: &TemplateValues<'_>,
    room: &mut SizeBudget,
) -> Result<Option<Value>, RenderError> {
    Ok(Some(match template {
        Template::Literal(value) => room.copy(value)?,
        Template::Reference(reference) => match find(reference, values)? {
            Some(value) => room.copy(value)?,
            None => return Ok(None),
        },
        Template::Text(parts) => text(parts, values, room)?.into(),
        Template::List(items) => {
            let mut filled = Vec::with_capacity(items.len());
            for item in items {
                filled.extend(fill(item, values, room)?);
            }
            filled.into()
        }
        Template::Table(fields) => table(fields, values, room)?.into(),
    }))
}

fn text(
    parts: &[TemplatePart],
    values: &TemplateValues<'_>,
    room: &mut SizeBudget,
) -> Result<String, RenderError> {
    let mut filled = String::new();
    for part in parts {
        let plain;
        let piece = match part {
            TemplatePart::Literal(text) => text,
            TemplatePart::Reference(reference) => match find(reference, values)? {
                Some(Value::String(text)) => text,
                Some(value @ (Value::Number(_) | Value::Bool(_))) => {
                    plain = value.to_string();
                    &plain
                }
                Some(Value::Null) => return Err(cannot(reference, "is nothing, which no text can say")),
                Some(Value::Array(_)) => return Err(cannot(reference, "is a list, and a list is no text")),
                Some(Value::Object(_)) => return Err(cannot(reference, "is an object, and that is no text")),
                None => return Err(cannot(reference, "was not given, and stands in a text")),
            },
        };
        room.take(piece.len())?;
        filled.push_str(piece);
    }
    Ok(filled)
}

/// Returns the value of the reference; none if it is an argument that was not given.
fn find<'v>(
    reference: &TemplateReference,
    values: &TemplateValues<'v>,
) -> Result<Option<&'v Value>, RenderError> {
    let mut value = match &reference.root {
        ReferenceRoot::Arg(name) => match values.args.get(name) {
            Some(value) => value,
            None => return Ok(None),
        },
        ReferenceRoot::Step(at) => {
            values.steps.get(*at).ok_or_else(|| cannot(reference, "is of a step that has not run"))?
        }
    };
    for segment in &reference.path {
        let next = match (segment, value) {
            (ReferenceSegment::Field(name), Value::Object(fields)) => fields.get(name),
            (ReferenceSegment::Index(at), Value::Array(items)) => items.get(*at),
            (_, Value::Null) => {
                return Err(cannot(reference, "leads into nothing: a value on the way is null"));
            }
            _ => None,
        };
        value = next.ok_or_else(|| match segment {
            ReferenceSegment::Field(name) => {
                cannot(reference, &format!("leads nowhere: there is no field `{name}`"))
            }
            ReferenceSegment::Index(at) => {
                cannot(reference, &format!("leads nowhere: there is no item {at}"))
            }
        })?;
    }
    Ok(Some(value))
}

fn cannot(reference: &TemplateReference, why: &str) -> RenderError {
    RenderError(format!("{} {why}", shown(&reference.text)))
}
