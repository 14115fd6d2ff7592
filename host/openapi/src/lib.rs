//! From an OpenAPI document to the project of a connector.
//!
//! [`Document::read`] reads a document of version 3.0 or 3.1 with the files that it refers to. A [`DocumentReader`] makes
//! types of its schemas, and files of its operations: WIT, Rust code on the guest SDK, a manifest and scenarios. Nothing
//! here reads or writes files: a [`DocumentLoader`] does.
//!
//! A type depends on the document alone, so that asking for more operations changes none that is there. What WIT cannot
//! say (recursion, objects with any fields, alternatives that nothing tells apart) is JSON text, and the [`Report`] says
//! where. No text of a document becomes code: Rust is made of tokens, and everything else passes `emit::text`.

mod diff;
mod document;
mod emit;
mod error;
mod graph;
mod names;
mod operation;
mod paging;
mod project;
mod report;
mod sample;
mod schema;
mod security;
mod server;
mod size;
#[path = "../templates/style.rs"]
mod style;
#[cfg(test)]
mod style_tests;
mod types;
mod yaml;

pub use diff::{InterfaceDiff, diff_interfaces};
pub use document::{Document, DocumentLoader, Location, MAX_FILE_BYTES};
pub use error::OpenApiError;
pub use project::{DocumentReader, GENERATED, MAX_OPERATIONS, Project, ProjectFile, ProjectOptions};
pub use report::{OperationReport, OperationStatus, Report};
