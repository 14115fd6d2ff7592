//! TOML documents in which every problem has its place: file, line, column, key, message and fix.
//!
//! The common mechanism for every document that people write (manifests, keyrings, actions, configuration):
//! [`read`] passes the root table to a function that reads its values, reports the problems and continues, so
//! that one run shows all the problems and not only the first.

mod as_json;
mod diagnostics;
mod error;
mod reader;
mod value;

pub use diagnostics::{Diagnostics, PathSegment};
pub use error::{Diagnostic, DocumentError, InvalidValue};
pub use error::{quoted, quoted_ascii};
pub use reader::{DocumentTable, SpannedItem, line_of, read, read_part};
pub use value::SpannedValue;
