//! The report of what of a document is carried over.

use crate::error::OpenApiError;

/// The result of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationStatus {
    /// All its types are in the interface.
    Exact,
    /// A part of its types is JSON text.
    WithJsonText,
    /// It cannot be an operation of a connector.
    Refused(OpenApiError),
}

/// The report of one operation.
#[derive(Debug, Clone)]
pub struct OperationReport {
    /// Its id in the document, or method and path.
    pub id: String,
    /// Its name as callers write it.
    pub name: String,
    /// The method, in upper case.
    pub method: String,
    /// The path.
    pub path: String,
    /// The result.
    pub status: OperationStatus,
    /// Notes for the author.
    pub notes: Vec<String>,
}

/// The report of the chosen operations.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// In the order of the document.
    pub operations: Vec<OperationReport>,
}

impl Report {
    /// Returns the number of operations: exact, with JSON text, refused.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for operation in &self.operations {
            match operation.status {
                OperationStatus::Exact => counts.0 += 1,
                OperationStatus::WithJsonText => counts.1 += 1,
                OperationStatus::Refused(_) => counts.2 += 1,
            }
        }
        counts
    }
}
