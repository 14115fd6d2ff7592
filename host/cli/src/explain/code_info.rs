//! A word of ours: what it is, what it means, whether to try again, and who can do something about it.

use std::sync::LazyLock;

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::{FailureBoundary, FailureCause, FailureClass, LimitKind, RESERVED_CLASSES};
use serde::Serialize;

use super::{advice, codes, external_codes, host_errors, recovery};

/// What a word is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TermKind {
    /// One of the nine classes (`error.class`).
    Class,
    /// The finer word within a class (`error.details.code`).
    Code,
    /// An error of the host itself (`error.code` of the other envelope).
    HostError,
    /// An outcome that is neither a value nor a failure.
    Outcome,
    /// Why a failure that might have been repeated was not (`error.details.retry_stopped`).
    RetryStopped,
    /// Why an outcome is not given again, or a call that was cut short not done again (`details.reason`,
    /// `not_resumable`).
    Recovery,
    /// A name that the contract keeps for later: nothing produces it.
    Reserved,
}

impl TermKind {
    /// What it is, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Class => "a class of failure",
            Self::Code => "a code of a failure (details.code)",
            Self::HostError => "an error of the host itself",
            Self::Outcome => "an outcome: neither a value nor a failure",
            Self::RetryStopped => "why a failure was not repeated (details.retry_stopped)",
            Self::Recovery => "why an outcome is not given again, or a call not done again (details.reason)",
            Self::Reserved => "a reserved name: nothing produces it",
        }
    }
}

/// Whether the same call, made again, may end otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAdvice {
    /// It may pass by itself: yes, after waits that grow.
    Backoff,
    /// Yes, once the time is over that the service or the host names.
    WhenTold,
    /// It depends: the failure's own `retriable` says it.
    Depends,
    /// The envelope says no; a profile that names it repeats it all the same, since it may have been bad luck.
    OptIn,
    /// No: it ends the same way until somebody changes something.
    No,
}

impl RetryAdvice {
    /// The advice, in one sentence.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Backoff => "Yes, with exponential backoff, if the operation is idempotent.",
            Self::WhenTold => {
                "Yes, after the time that Retry-After or `details.retry_after_ms` names, else with exponential backoff."
            }
            Self::Depends => "Maybe: `retriable` of the failure itself says it.",
            Self::OptIn => "No, unless a retry profile names it and the operation is idempotent.",
            Self::No => "No: the same call ends the same way until somebody changes something.",
        }
    }

    /// The short word for tables.
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

/// Who can do something about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FixOwner {
    /// Whoever makes the call.
    Caller,
    /// Whoever runs the host.
    Operator,
    /// Whoever writes the connector.
    Author,
    /// Whoever runs the service that it asks.
    Service,
}

impl FixOwner {
    /// Who that is, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Caller => "the caller",
            Self::Operator => "the operator of the host",
            Self::Author => "the connector's author",
            Self::Service => "the service; time may do",
        }
    }
}

/// A word of ours.
#[derive(Debug, Clone, Serialize)]
pub struct CodeInfo {
    /// The word.
    pub word: &'static str,
    /// What it is.
    pub kind: TermKind,
    /// The class that it is a code of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Where it comes from; empty for what is no failure.
    #[serde(skip_serializing_if = "<[FailureBoundary]>::is_empty")]
    pub boundary: &'static [FailureBoundary],
    /// What it means, in one sentence.
    pub meaning: &'static str,
    /// Whether to try again.
    pub again: RetryAdvice,
    /// What a retry profile calls it, where one may name it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "cause")]
    pub cause: Option<FailureCause>,
    /// Who can mend it.
    pub mended_by: FixOwner,
    /// What to do, in a sentence or two.
    pub remedy: &'static str,
    /// The exit code of the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

fn cause<S: serde::Serializer>(cause: &Option<FailureCause>, serializer: S) -> Result<S::Ok, S::Error> {
    cause.map(FailureCause::name).serialize(serializer)
}

/// Every word of ours: classes, codes, limits, errors of the host, outcomes, reserved names.
pub fn code_infos() -> &'static [CodeInfo] {
    static OURS: LazyLock<Vec<CodeInfo>> = LazyLock::new(|| {
        let mut all: Vec<_> = FailureClass::ALL.iter().map(|class| of_class(*class)).collect();
        all.extend(codes::CODES.iter().chain(external_codes::EXTERNAL_CODES).map(codes::CodeRow::to_info));
        all.extend(LimitKind::ALL.iter().map(|limit| advice::of_limit(*limit)));
        all.extend(HostErrorKind::ALL.iter().map(|kind| host_errors::of_kind(*kind)));
        all.extend(advice::STOPPED.iter().map(advice::of_stopped));
        all.extend(recovery::REASONS.iter().map(recovery::ReasonRow::to_info));
        all.extend(RESERVED_CLASSES.iter().map(|word| reserved(word)));
        all
    });
    &OURS
}

fn of_class(class: FailureClass) -> CodeInfo {
    let (again, mended_by, remedy) = advice::of_class(class);
    CodeInfo {
        word: class.name(),
        kind: TermKind::Class,
        class: None,
        boundary: class.boundaries(),
        meaning: class.meaning(),
        again,
        cause: (class == FailureClass::NetworkError).then_some(FailureCause::Network),
        mended_by,
        remedy,
        exit_code: Some(class.exit_code()),
    }
}

fn reserved(word: &'static str) -> CodeInfo {
    CodeInfo {
        word,
        kind: TermKind::Reserved,
        class: None,
        boundary: &[],
        meaning: "A person did not allow the call, or did not answer in time; boundary `user`.",
        again: RetryAdvice::No,
        cause: None,
        mended_by: FixOwner::Caller,
        remedy: "Nothing to do: there are no approvals yet, and no value of the host can hold this name.",
        exit_code: None,
    }
}
