//! An action: the declarations of its file, the inputs of its steps, and the subset of a connector that its
//! calls may use.

mod file;
mod inputs;
mod lexical;
mod output;
mod parse;
mod render;
mod scope;
mod steps;
mod template;

pub use cofferdam_core::document::{Diagnostic, DocumentError, InvalidValue};
pub use file::{
    Action, ActionInput, ActionStep, ConnectorRequirement, DEFAULT_TIMEOUT, InputKind, StepRetry, StepTarget,
};
pub use lexical::action_name;
pub use output::{OutputError, OutputSchema};
pub use render::RenderError;
pub use scope::ActionScope;
pub use template::{
    ReferenceRoot, ReferenceSegment, Template, TemplatePart, TemplateReference, TemplateValues,
};

#[cfg(test)]
mod diagnostic_tests;
#[cfg(test)]
mod escape_tests;
#[cfg(test)]
mod tests;
