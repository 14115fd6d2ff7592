//! An operation: one exported function of a connector, under the name that callers use.

use std::fmt;

use super::shape::{ShapeField, ValueShape, WitName};

/// The field whose items say what of a value is missing.
const ERRORS: &str = "errors";

/// One operation of a connector.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationSignature {
    pub(super) name: WitName,
    pub(super) interface: Option<String>,
    pub(super) params: Vec<ShapeField>,
    pub(super) result: Option<ValueShape>,
}

impl OperationSignature {
    /// The name: `json()` for callers, `wit()` as the component exports it.
    #[must_use]
    pub fn name(&self) -> &WitName {
        &self.name
    }

    /// The exported interface it is in (`acme:slack/slack@1.0.0`); none at the top level of the world.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// The parameters, in order.
    #[must_use]
    pub fn params(&self) -> &[ShapeField] {
        &self.params
    }

    /// Returns true if its value can be partial: a record with a list `errors`, one for each item that
    /// failed.
    #[must_use]
    pub fn lists_errors(&self) -> bool {
        let Some(ValueShape::Record(fields)) = &self.result else { return false };
        fields.iter().any(|field| field.name.json() == ERRORS && matches!(field.shape, ValueShape::List(_)))
    }

    /// Returns the type of its value.
    #[must_use]
    pub fn result(&self) -> Option<&ValueShape> {
        self.result.as_ref()
    }
}

impl fmt::Display for OperationSignature {
    /// As `inspect` shows it: `list_issues(repo: string, page: option<u32>) -> list<issue>`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name.json())?;
        for (at, param) in self.params.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {}", param.name.json(), param.shape)?;
        }
        f.write_str(")")?;
        match &self.result {
            Some(result) => write!(f, " -> {result}"),
            None => Ok(()),
        }
    }
}
