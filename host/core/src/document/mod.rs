//! TOML documents whose every problem knows its place: file, line, column, key, message and fix.
//!
//! The one mechanism behind every document that people write (manifests, keyrings, actions,
//! configuration): [`read`] hands a [`Table`] to a function that takes it apart and reports what it
//! does not like, and goes on, so that one look shows all the problems and not only the first.

mod as_json;
mod findings;
mod node;
mod problem;
mod reader;

pub use findings::{Findings, Key};
pub use node::Node;
pub use problem::{DocumentError, Problem, Refused};
pub use problem::{quoted, quoted_ascii};
pub use reader::{Located, Table, line_of, read, read_part};
