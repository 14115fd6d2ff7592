//! The words of the host about failures, from `codes.toml`: meaning, advice and remedy of each.

use std::sync::LazyLock;

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::{DeadlineScope, FailureBoundary, FailureCause, FailureClass, LimitKind};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::exit_codes::{class_exit_code, kind_exit_code};

/// The kind of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermKind {
    /// One of the nine classes (`error.class`).
    Class,
    /// A code within a class (`error.details.code`).
    Code,
    /// An error of the host itself (`error.code` of the other envelope).
    HostError,
    /// An outcome that is neither a value nor a failure.
    Outcome,
    /// The reason that a retriable failure was not retried (`error.details.retry_stopped`).
    RetryStopped,
    /// The reason that an outcome is not replayed, or an interrupted call not resumed (`details.reason`,
    /// `not_resumable`).
    Recovery,
    /// A name that the contract reserves: nothing produces it.
    Reserved,
}

impl TermKind {
    /// Returns the kind for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Class => "a class of failure",
            Self::Code => "a code of a failure (details.code)",
            Self::HostError => "an error of the host itself",
            Self::Outcome => "an outcome: neither a value nor a failure",
            Self::RetryStopped => "why a failure was not retried (details.retry_stopped)",
            Self::Recovery => "why an outcome is not replayed, or a call not resumed (details.reason)",
            Self::Reserved => "a reserved name: nothing produces it",
        }
    }
}

/// The advice on making the same call again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAdvice {
    /// It is likely to pass: yes, after growing waits.
    Backoff,
    /// Yes, after the time that the service or the host names.
    WhenTold,
    /// It depends: the failure's own `retriable` decides.
    Depends,
    /// The envelope says no; a profile that names it retries it.
    OptIn,
    /// No: it ends the same way until something is changed.
    No,
}

impl RetryAdvice {
    /// Returns the advice in one sentence.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Backoff => {
                "Yes, with exponential backoff, if the operation may be repeated or no request was sent."
            }
            Self::WhenTold => {
                "Yes, if the operation may be repeated or no request was sent: after the time that Retry-After or \
                 `details.retry_after_ms` names, else with exponential backoff."
            }
            Self::Depends => "Maybe: `retriable` of the failure itself says it.",
            Self::OptIn => "No, unless a retry profile names it and the operation is idempotent.",
            Self::No => "No: the same call ends the same way until something is changed.",
        }
    }

    /// Returns the short word for tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Backoff => "yes",
            Self::WhenTold => "when told",
            Self::Depends => "depends",
            Self::OptIn => "opt-in",
            Self::No => "no",
        }
    }
}

/// The role that can fix the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FixOwner {
    /// The program or person that makes the call.
    Caller,
    /// The operator of the host.
    Operator,
    /// The connector's author.
    Author,
    /// The operator of the external service.
    Service,
}

impl FixOwner {
    /// Returns the role for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Caller => "the caller",
            Self::Operator => "the operator of the host",
            Self::Author => "the connector's author",
            Self::Service => "the service; it may pass with time",
        }
    }
}

/// A word of the host. In `codes.toml` classes, limits and errors of the host have no `meaning`, and most limits no
/// `remedy`: these are beside their enums.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeInfo {
    /// The word.
    pub word: String,
    /// Its kind.
    pub kind: TermKind,
    /// The class that it is a code of.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "class")]
    pub class: Option<FailureClass>,
    /// The possible boundaries; empty for words of other kinds than classes and codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "boundaries")]
    pub boundary: Vec<FailureBoundary>,
    /// Its meaning, in one sentence.
    #[serde(default)]
    pub meaning: String,
    /// The advice on making the same call again.
    pub again: RetryAdvice,
    /// Its name in retry profiles, if they can name it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "cause_name",
        deserialize_with = "cause"
    )]
    pub cause: Option<FailureCause>,
    /// The role that can fix it.
    #[serde(rename(serialize = "mended_by"))]
    pub fixed_by: FixOwner,
    /// The remedy, in a sentence or two.
    #[serde(default)]
    pub remedy: String,
    /// The exit code of the command line.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

fn named<'de, D: Deserializer<'de>, T: Copy>(
    name: &str,
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> Result<T, D::Error> {
    let found = all.iter().copied().find(|known| name_of(*known) == name);
    found.ok_or_else(|| D::Error::custom(format!("`{name}` does not exist")))
}

fn class<'de, D: Deserializer<'de>>(from: D) -> Result<Option<FailureClass>, D::Error> {
    named::<D, _>(&String::deserialize(from)?, FailureClass::ALL, FailureClass::name).map(Some)
}

fn boundaries<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<FailureBoundary>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    names.iter().map(|name| named::<D, _>(name, &FailureBoundary::ALL, FailureBoundary::name)).collect()
}

fn cause<'de, D: Deserializer<'de>>(from: D) -> Result<Option<FailureCause>, D::Error> {
    named::<D, _>(&String::deserialize(from)?, &FailureCause::ALL, FailureCause::name).map(Some)
}

fn cause_name<S: serde::Serializer>(cause: &Option<FailureCause>, serializer: S) -> Result<S::Ok, S::Error> {
    cause.map(FailureCause::name).serialize(serializer)
}

impl CodeInfo {
    /// Adds the facts that are beside the enums.
    fn completed(mut self) -> Self {
        let class = FailureClass::ALL.iter().copied().find(|class| class.name() == self.word);
        let host_error = HostErrorKind::ALL.iter().copied().find(|kind| kind.code() == self.word);
        match (self.kind, class, host_error) {
            (TermKind::Class, Some(class), _) => {
                self.boundary = class.boundaries().to_vec();
                class.meaning().clone_into(&mut self.meaning);
                self.exit_code = Some(class_exit_code(class));
            }
            (TermKind::HostError | TermKind::Outcome, _, Some(kind)) => {
                kind.meaning().clone_into(&mut self.meaning);
                self.exit_code = Some(kind_exit_code(kind));
            }
            (TermKind::Code, ..) => self.exit_code = self.class.map(class_exit_code),
            _ => {}
        }
        if self.class == Some(FailureClass::ResourceLimitExceeded)
            && let Some(limit) = LimitKind::ALL.iter().find(|limit| limit.code() == self.word)
        {
            limit.meaning().clone_into(&mut self.meaning);
            if self.remedy.is_empty() {
                limit.owner(DeadlineScope::Call).advice.clone_into(&mut self.remedy);
            }
        }
        self
    }
}

fn parse() -> Result<Vec<CodeInfo>, toml::de::Error> {
    #[derive(Deserialize)]
    struct CodeFile {
        code: Vec<CodeInfo>,
    }
    let file: CodeFile = toml::from_str(include_str!("codes.toml"))?;
    Ok(file.code.into_iter().map(CodeInfo::completed).collect())
}

/// Returns every word of the host: classes, codes, limits, errors of the host, outcomes, reasons and reserved names.
pub fn code_infos() -> &'static [CodeInfo] {
    // A test holds that the file parses.
    static ALL: LazyLock<Vec<CodeInfo>> = LazyLock::new(|| parse().unwrap_or_default());
    &ALL
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
    use cofferdam_core::failure::{RESERVED_CLASSES, RetryStopped};

    use super::*;

    #[test]
    fn every_word_of_the_enums_has_one_row() {
        let all = parse().unwrap_or_else(|error| panic!("codes.toml: {error}"));
        let words = |kinds: &[TermKind]| -> Vec<_> {
            let rows = all.iter().filter(|row| kinds.contains(&row.kind));
            rows.map(|row| row.word.as_str()).collect()
        };
        let names: Vec<_> = FailureClass::ALL.iter().map(|class| class.name()).collect();
        assert_eq!(words(&[TermKind::Class]), names);
        let names: Vec<_> = HostErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(words(&[TermKind::HostError, TermKind::Outcome]), names);
        assert_eq!(words(&[TermKind::RetryStopped]), RetryStopped::ALL.map(RetryStopped::name));
        assert_eq!(words(&[TermKind::Reserved]), RESERVED_CLASSES);
        let limits: Vec<_> = LimitKind::ALL.iter().map(|limit| limit.code()).collect();
        let of_limits = all.iter().filter(|row| row.class == Some(FailureClass::ResourceLimitExceeded));
        assert_eq!(of_limits.map(|row| row.word.as_str()).collect::<Vec<_>>(), limits);
        for row in &all {
            assert!(!row.meaning.is_empty() && !row.remedy.is_empty(), "{}", row.word);
            let failure = matches!(row.kind, TermKind::Class | TermKind::Code);
            assert_eq!(failure, !row.boundary.is_empty(), "{}", row.word);
        }
        for yes in [RetryAdvice::Backoff, RetryAdvice::WhenTold] {
            assert!(yes.advice().contains("if the operation may be repeated"), "{}", yes.word());
        }
        let mut seen = std::collections::HashSet::new();
        assert!(all.iter().all(|row| seen.insert((&row.word, row.kind, row.class))));
    }
}
