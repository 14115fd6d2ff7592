//! Why a recorded outcome is not given again, and why a call that was cut short is not done again.

use super::code_info::{CodeInfo, FixOwner, RetryAdvice, TermKind};

/// A word of `details.reason` of `not_replayable`, or of `not_resumable` of what `recover list` has.
pub(super) struct ReasonRow {
    word: &'static str,
    meaning: &'static str,
    again: RetryAdvice,
    mended_by: FixOwner,
    remedy: &'static str,
}

impl ReasonRow {
    pub(super) fn to_info(&self) -> CodeInfo {
        CodeInfo {
            word: self.word,
            kind: TermKind::Recovery,
            class: None,
            boundary: &[],
            meaning: self.meaning,
            again: self.again,
            cause: None,
            mended_by: self.mended_by,
            remedy: self.remedy,
            exit_code: None,
        }
    }
}

const fn reason(
    word: &'static str,
    again: RetryAdvice,
    mended_by: FixOwner,
    meaning: &'static str,
    remedy: &'static str,
) -> ReasonRow {
    ReasonRow { word, meaning, again, mended_by, remedy }
}

/// All of them.
pub(super) const REASONS: &[ReasonRow] = &[
    reason(
        "still_running",
        RetryAdvice::Backoff,
        FixOwner::Caller,
        "The call has no end yet, and its host lives.",
        "Wait for its end; `cofferdam audit tail -f` shows it.",
    ),
    reason(
        "execution_incomplete",
        RetryAdvice::No,
        FixOwner::Operator,
        "The call was cut short: it has a beginning on record and no end, and its host is gone.",
        "`cofferdam recover list` says what can be done; where it was done again, `details.suggestion` names that call.",
    ),
    reason(
        "cancelled",
        RetryAdvice::No,
        FixOwner::Caller,
        "The call was cancelled before it had an outcome.",
        "There is none to give. Where its key is undecided, `cofferdam recover list` has the call.",
    ),
    reason(
        "not_kept",
        RetryAdvice::No,
        FixOwner::Operator,
        "What the call asked for, or its outcome, is not kept: `results = false` in config.toml, or it was dropped.",
        "`cofferdam audit show` has what is known. Call anew where that does no harm, and skip what was cut short.",
    ),
    reason(
        "sealed_under_another_key",
        RetryAdvice::No,
        FixOwner::Operator,
        "`host.key` is not the one that it was sealed with, or what is sealed was changed.",
        "Put the `host.key` back that was there; `cofferdam audit verify` says whether anything was changed.",
    ),
    reason(
        "not_idempotent",
        RetryAdvice::No,
        FixOwner::Operator,
        "The operation must not be repeated, and whether it had its effect is not known.",
        "Look at the service, then `cofferdam recover skip`.",
    ),
    reason(
        "undeclared",
        RetryAdvice::No,
        FixOwner::Operator,
        "The manifest does not declare the operation idempotent, and what its last attempt sent is not known, or was a request that may take effect each time it arrives.",
        "Look at the service, then `cofferdam recover skip`. Its author may declare it `idempotent` by name, for calls to come.",
    ),
    reason(
        "an_action",
        RetryAdvice::Depends,
        FixOwner::Caller,
        "It is an action: its steps are calls of their own, and it is not resumed as a call is.",
        "Run the action again under the same key; without one look at what its steps did, then `cofferdam recover skip`.",
    ),
    reason(
        "not_installed",
        RetryAdvice::No,
        FixOwner::Operator,
        "The package that was to run is not installed any more.",
        "Install the same package again, and resume; or `cofferdam recover skip`.",
    ),
];
