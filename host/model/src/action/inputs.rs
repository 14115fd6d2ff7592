//! The declared inputs of an action: read from its file, and described to callers as a JSON Schema.

use cofferdam_core::document::{DocumentTable, InvalidValue, SpannedValue, quoted};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_core::limits::PAYLOAD_BYTES;
use cofferdam_core::suggest;
use serde_json::{Map, Number, Value, json};

use super::file::{ActionInput, InputKind};
use super::lexical::{check_unique, line, prose, word};

/// Most inputs.
pub(super) const MAX_INPUTS: usize = 64;

/// The most allowed values of an input.
const MAX_CHOICES: usize = 100;

const KEYS: [&str; 9] =
    ["name", "type", "items_type", "description", "required", "default", "enum", "label", "multiline"];

/// The types, as the file names them.
const TYPES: [(&str, InputKind); 6] = [
    ("string", InputKind::String),
    ("integer", InputKind::Integer),
    ("number", InputKind::Number),
    ("boolean", InputKind::Boolean),
    ("array", InputKind::Array(None)),
    ("object", InputKind::Object),
];

/// Reads the `[[inputs]]` and reports their problems.
pub(super) fn inputs(tables: &[DocumentTable<'_>]) -> Option<Vec<ActionInput>> {
    let mut seen = Vec::new();
    let read: Vec<_> = tables
        .iter()
        .map(|table| {
            if let Some(name) = table.text("name") {
                check_unique(table, "name", name.value, &mut seen);
            }
            input(table)
        })
        .collect();
    read.into_iter().collect()
}

fn input(table: &DocumentTable<'_>) -> Option<ActionInput> {
    table.reject_unknown_keys(&KEYS);
    let name = table.required_text("name", "name = \"branch\"");
    let name = name.and_then(|text| text.parse(|text| word("an input's name", text)));
    let kind = kind(table);
    let description =
        table.required_text("description", "description = \"...\": callers know the input by it");
    let description = description.and_then(|text| text.parse(|text| prose(text, 2_000)));
    let label = line(table, "label", 100);
    let multiline = table.flag("multiline").unwrap_or(false);
    if let (Some(kind), true, Some(place)) = (&kind, multiline, table.location_of("multiline"))
        && *kind != InputKind::String
    {
        place.refuse(InvalidValue::new("only a string has lines", "remove it"));
    }
    let choices = choices(table, kind.as_ref());
    let required = table.flag("required").unwrap_or(true);
    let mut input = ActionInput {
        name: name?,
        kind: kind?,
        description: description?,
        required,
        default: None,
        choices: choices?,
        label,
        multiline,
        line: table.location().line(),
    };
    input.default = default(table, &input)?;
    Some(input)
}

fn kind(table: &DocumentTable<'_>) -> Option<InputKind> {
    let named = |word: &str, known: &[(&str, InputKind)]| {
        let found = known.iter().find(|(name, _)| *name == word).map(|(_, kind)| kind.clone());
        found.ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
            let fix = match suggest::nearest(word, names.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"? (there are: {})", names.join(", ")),
                None => format!("write one of {}", names.join(", ")),
            };
            InvalidValue::new(format!("{} is not a type", quoted(word)), fix)
        })
    };
    let kind = table.required_text("type", "type = \"string\"");
    let kind = kind.and_then(|text| text.parse(|text| named(text, &TYPES)));
    let Some(items) = table.text("items_type") else { return kind };
    let scalar: Vec<_> = TYPES.into_iter().filter(|(name, _)| *name != "array").collect();
    let item = items.parse(|text| named(text, &scalar));
    match kind? {
        InputKind::Array(_) => Some(InputKind::Array(Some(Box::new(item?)))),
        _ => {
            items
                .refuse(InvalidValue::new("only an array has items", "remove it, or write type = \"array\""));
            None
        }
    }
}

/// Returns the allowed values of a string; empty if any is allowed.
fn choices(table: &DocumentTable<'_>, kind: Option<&InputKind>) -> Option<Vec<String>> {
    if !table.has("enum") {
        return Some(Vec::new());
    }
    let texts = table.texts("enum");
    let place = table.location_of("enum")?;
    if kind.is_some_and(|kind| *kind != InputKind::String) {
        place.refuse(InvalidValue::new("only a string is chosen from a list", "remove it"));
        return None;
    }
    if texts.is_empty() || texts.len() > MAX_CHOICES {
        place.refuse(InvalidValue::new("this is nothing to choose from", "write 1 to 100 different texts"));
        return None;
    }
    let mut choices: Vec<String> = Vec::new();
    for text in texts {
        if choices.iter().any(|known| known == text.value) {
            text.refuse(InvalidValue::new(
                format!("{} stands in the list twice", quoted(text.value)),
                "remove one",
            ));
        }
        choices.push(text.value.to_owned());
    }
    Some(choices)
}

/// Returns the default, if there is one; none at all if it is invalid and was reported.
fn default(table: &DocumentTable<'_>, input: &ActionInput) -> Option<Option<Value>> {
    let Some(place) = table.location_of("default") else { return Some(None) };
    let node = table.node("default")?;
    let refuse = |message: &str, fix: &str| {
        place.refuse(InvalidValue::new(message, fix));
        None
    };
    if input.required {
        return refuse("an input that must be given has no default", "write required = false, or remove it");
    }
    if refers(&node) {
        return refuse("a default has no references in it: it is taken as it stands", "write the value out");
    }
    let value = plain(&node);
    match input.check_value(&value) {
        Ok(fitting) => Some(Some(fitting)),
        Err(why) => refuse(&format!("the default does not fit: {why}"), "write a value of the input's type"),
    }
}

fn refers(node: &SpannedValue<'_>) -> bool {
    match node {
        SpannedValue::Plain(_) => false,
        SpannedValue::Text(text) => text.value.contains("${"),
        SpannedValue::List(_, items) => items.iter().any(refers),
        SpannedValue::Table(_, fields) => fields.iter().any(|(_, field)| refers(field)),
    }
}

fn plain(node: &SpannedValue<'_>) -> Value {
    match node {
        SpannedValue::Plain(plain) => plain.value.clone(),
        SpannedValue::Text(text) => text.value.into(),
        SpannedValue::List(_, items) => items.iter().map(plain).collect(),
        SpannedValue::Table(_, fields) => {
            let field =
                |(name, field): &(cofferdam_core::document::SpannedItem<'_, &str>, SpannedValue<'_>)| {
                    (name.value.to_owned(), plain(field))
                };
            Value::Object(fields.iter().map(field).collect())
        }
    }
}

impl InputKind {
    /// The type, as JSON Schema and the file name it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array(_) => "array",
            Self::Object => "object",
        }
    }
}

impl ActionInput {
    /// The input as a property of a JSON Schema.
    fn schema(&self) -> Value {
        let mut schema = Map::new();
        schema.insert("type".into(), self.kind.name().into());
        if let InputKind::Array(Some(item)) = &self.kind {
            schema.insert("items".into(), json!({"type": item.name()}));
        }
        if let Some(label) = &self.label {
            schema.insert("title".into(), label.as_str().into());
        }
        schema.insert("description".into(), self.description.as_str().into());
        if !self.choices.is_empty() {
            schema.insert("enum".into(), self.choices.clone().into());
        }
        if let Some(default) = &self.default {
            schema.insert("default".into(), default.clone());
        }
        schema.into()
    }
}

/// Returns the schema of the arguments, as a JSON Schema.
pub(super) fn schema(inputs: &[ActionInput]) -> Value {
    if inputs.is_empty() {
        return json!({"type": "object"});
    }
    let properties: Map<_, _> = inputs.iter().map(|input| (input.name.clone(), input.schema())).collect();
    let required: Vec<_> = inputs.iter().filter(|input| input.required).map(|input| &input.name).collect();
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if let (Some(schema), false) = (schema.as_object_mut(), required.is_empty()) {
        schema.insert("required".into(), json!(required));
    }
    schema
}

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
