//! The value of an action: the value of its last step, and the values of all steps.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// The value of an action, all of whose steps have a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ActionValue {
    /// The action's name.
    pub action: String,
    /// The value of its last step.
    pub output: Value,
    /// The value of each step, in their order.
    pub steps: Map<String, Value>,
}

impl ActionValue {
    /// Builds the value of the action `name` with these steps. The last step's value is the action's.
    pub(super) fn whole<'s>(name: &str, ids: impl Iterator<Item = &'s str>, values: Vec<Value>) -> Value {
        let output = values.last().cloned().unwrap_or_default();
        let steps: Map<String, Value> = ids.map(str::to_owned).zip(values).collect();
        json!({"action": name, "output": output, "steps": steps})
    }

    /// Restores the value from its recorded form.
    pub(super) fn recorded(value: Value) -> Self {
        let Value::Object(mut fields) = value else {
            return Self { action: String::new(), output: Value::Null, steps: Map::new() };
        };
        let mut take = |name: &str| fields.remove(name).unwrap_or_default();
        let text = |value| if let Value::String(text) = value { text } else { String::new() };
        let object = |value| if let Value::Object(fields) = value { fields } else { Map::new() };
        Self { action: text(take("action")), output: take("output"), steps: object(take("steps")) }
    }
}
