//! Writes the files of a project.

pub(crate) mod manifest;
pub(crate) mod rust;
pub(crate) mod rust_operations;
pub(crate) mod rust_pages;
pub(crate) mod scenario;
pub(crate) mod text;
pub(crate) mod wit;
