//! What every word of a failure means: ours, and those of the documents that ours are answers to.
//!
//! A failure says its class and its code, an error of the host its code. Here is, for each such word, what it means,
//! whether the same call may be made again, who can mend it and how; and for each word of the other documents
//! ([`Document`]) what it is called here. Both are tables: whatever prints, maps or checks words reads these.

mod advice;
mod codes;
mod documents;
mod foreign;
mod hosts;
mod lookup;
mod ours;
mod outside;
mod recovery;
#[cfg(test)]
mod reference;

pub use documents::foreign;
pub use foreign::{Becomes, Document, Foreign, Theirs};
pub use lookup::{Explanation, explain, nearest, words};
pub use ours::{Again, Kind, Mender, Ours, ours};
