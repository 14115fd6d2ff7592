//! The words of other documents about failure: what each is here, or why there is nothing of the kind here.

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;
use serde::{Serialize, Serializer};

use SourceDocument::{ErrorModel, Failover, FailureModel, Handling, Recovery};
use TermMapping::{AsLast, Cancelled, Failure, Host, Later, Never, Reserved};

/// A document that others wrote about failure, and that this host follows. `docs/reference/failures.md` says more of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceDocument {
    /// The one that the nine classes, the envelope and the default retries are from.
    Recovery,
    /// Eight classes with codes, a retry policy for each, and partial results.
    ErrorModel,
    /// Categories, breakers and chains of providers.
    Failover,
    /// Fourteen codes, and rules for who may see what.
    Handling,
    /// Fourteen codes in six categories, records and replay.
    FailureModel,
}

impl SourceDocument {
    /// Every document.
    pub const ALL: [Self; 5] = [Recovery, ErrorModel, Failover, Handling, FailureModel];

    /// Its short name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Recovery => "error recovery record (000)",
            ErrorModel => "error model (001)",
            Failover => "provider failover record (002)",
            Handling => "error handling standard (003)",
            FailureModel => "failure model (004)",
        }
    }
}

impl Serialize for SourceDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Whether a document itself says that the failure may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalRetry {
    /// It does.
    Yes,
    /// It says the opposite.
    No,
    /// It says that it depends.
    Maybe,
    /// It does not say.
    Silent,
}

/// What a foreign word is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TermMapping {
    /// A failure of this class, with one of these codes.
    Failure(FailureClass, &'static [&'static str]),
    /// The host's own error.
    Host(HostErrorKind),
    /// The third outcome: neither a value nor a failure.
    Cancelled,
    /// The failure of the last candidate that was asked, with `details.chain`.
    AsLast,
    /// A name that is kept and that nothing produces.
    Reserved,
    /// Nothing yet, and what it will be.
    Later(&'static str),
    /// Nothing, and why there is nothing of the kind.
    Never(&'static str),
}

impl TermMapping {
    /// What it is, in a few words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Failure(class, []) => class.name().to_owned(),
            Failure(class, codes) => format!("{}, code {}", class.name(), codes.join(" or ")),
            Host(kind) => format!("the host's own error {}", kind.code()),
            Cancelled => "the outcome cancelled, which is no failure".to_owned(),
            AsLast => "the failure of the last candidate, with details.chain".to_owned(),
            Reserved => "a reserved name that nothing produces".to_owned(),
            Later(what) => format!("not yet there: {what}"),
            Never(why) => format!("nothing of the kind: {why}"),
        }
    }

    /// Our words for it.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        let (first, codes): (Option<&'static str>, &'static [&'static str]) = match self {
            Failure(class, codes) => (Some(class.name()), codes),
            Host(kind) => (Some(kind.code()), &[]),
            Cancelled => (Some(HostErrorKind::Cancelled.code()), &[]),
            AsLast | Reserved | Later(_) | Never(_) => (None, &[]),
        };
        first.into_iter().chain(codes.iter().copied())
    }
}

/// One foreign word.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ExternalTerm {
    /// Who says it.
    pub document: SourceDocument,
    /// The word, as it is written there.
    pub word: &'static str,
    /// The class, category or list that it is in there.
    pub group: &'static str,
    /// Whether the document says to try again.
    pub theirs: ExternalRetry,
    /// What it is here.
    #[serde(serialize_with = "in_words")]
    pub becomes: TermMapping,
    /// What is different here, or must be known; empty where nothing.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
}

fn in_words<S: Serializer>(becomes: &TermMapping, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&becomes.text())
}
