//! An action: what its file declares, and the subset of a connector that its calls may use.

mod file;
mod scope;
mod template;

pub use crate::document::Refused as ScopeError;
pub use file::{Action, Input, InputKind, Requirement, Retry, Step, Target};
pub use scope::ActionScope;
pub use template::{Part, Reference, Root, Segment, Template, Values};
