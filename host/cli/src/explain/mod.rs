//! The vocabulary of failures: the words of the host (classes, codes, errors, reasons) with meaning, advice and remedy,
//! and the words of other documents with their equivalents. Both are data files; `explain`, the filters of the audit
//! commands and docs/reference/failures.md read them.

mod code_info;
mod external_term;
mod lookup;
#[cfg(test)]
mod reference_tests;

pub use code_info::{CodeInfo, FixOwner, RetryAdvice, TermKind, code_infos};
pub use external_term::{
    ExternalRetry, ExternalTerm, SourceDocument, TermMapping, documents, external_terms,
};
pub use lookup::{Explanation, explain, nearest, words};
