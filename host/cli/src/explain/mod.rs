//! What every word of a failure means: ours, and those of the documents that ours are answers to.
//!
//! A failure says its class and its code, an error of the host its code. Here is, for each such word, what it means,
//! whether the same call may be made again, who can mend it and how; and for each word of the other documents
//! ([`SourceDocument`]) what it is called here. Both are tables: whatever prints, maps or checks words reads these.

mod advice;
mod code_info;
mod codes;
mod documents;
mod external_codes;
mod external_term;
mod host_errors;
mod lookup;
mod recovery;
#[cfg(test)]
mod reference_tests;

pub use code_info::{CodeInfo, FixOwner, RetryAdvice, TermKind, code_infos};
pub use documents::external_terms;
pub use external_term::{ExternalRetry, ExternalTerm, SourceDocument, TermMapping};
pub use lookup::{Explanation, explain, nearest, words};
