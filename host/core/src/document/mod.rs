//! Documents in TOML, and some in YAML, in which every problem has its place: file, line, column, key, message and fix.
//!
//! The common mechanism for every document that people write (manifests, keyrings, actions, configuration):
//! [`read`] passes the root table to a function that reads its values, reports the problems and continues, so
//! that one run shows all the problems and not only the first.

mod error;
mod reader;
mod value;
mod yaml;

pub use error::{Diagnostic, Diagnostics, DocumentError, InvalidValue, PathSegment, quoted, quoted_ascii};
pub use reader::{DocumentTable, SpannedItem, line_of, read, read_part, read_yaml};
pub use value::SpannedValue;
