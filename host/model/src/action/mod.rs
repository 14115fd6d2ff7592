//! An action: what its file declares, what its steps are given, and the subset of a connector that its calls may use.

mod arguments;
mod file;
mod inputs;
mod output;
mod parse;
mod reference;
mod render;
mod scope;
mod source;
mod steps;
mod template;
mod words;

pub use cofferdam_core::document::{DocumentError as ActionError, Problem, Refused as ScopeError};
pub use file::{Action, DEFAULT_TIMEOUT, Input, InputKind, Requirement, Retry, Step, Target};
pub use output::{Output, OutputError};
pub use render::RenderError;
pub use scope::ActionScope;
pub use template::{Part, Reference, Root, Segment, Template, Values};
pub use words::action_name;

#[cfg(test)]
mod escapes;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod tests;
