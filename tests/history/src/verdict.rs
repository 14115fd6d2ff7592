//! The result of a check.

use std::collections::BTreeMap;
use std::fmt;

/// A kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// A client got an outcome, or a job was accepted, and the log or the upstream does not have it.
    Lost,
    /// An effect happened more often than once without a key by which the upstream could tell, or the log has two
    /// executions under one key.
    Doubled,
    /// The outcome that a client got is not the one in the log.
    Differs,
    /// One key has two outcomes.
    TwoOutcomes,
    /// The upstream got a request that no attempt in the log accounts for.
    Unlogged,
    /// A client was told that the outcome is unknown, and the log has no reason for it.
    Unjustified,
    /// The hash chain of a journal does not hold.
    Chain,
    /// The events of a call are not in order.
    Events,
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "acknowledged and lost",
            Self::Doubled => "doubled",
            Self::Differs => "answer differs from the log",
            Self::TwoOutcomes => "two outcomes for one key",
            Self::Unlogged => "effect without an attempt",
            Self::Unjustified => "unknown without a reason",
            Self::Chain => "chain",
            Self::Events => "events",
        })
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The key, the call or the journal.
    pub subject: String,
    /// The facts.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.kind, self.subject, self.text)
    }
}

/// A key whose outcome is unknown in the log, or of which a client was told so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The key.
    pub key: String,
    /// The call in the log that is the reason.
    pub call: String,
    /// The state of that call in the log.
    pub reason: String,
    /// True if a client got an outcome afterwards.
    pub is_resolved: bool,
}

/// The sizes of what was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys of the plan.
    pub keys: usize,
    /// Keys for which a client got a value.
    pub values: usize,
    /// Keys without a value for which a client got a failure.
    pub failures: usize,
    /// Keys for which no client got an outcome, nor that it is unknown.
    pub unanswered: usize,
    /// Requests of clients, by the kind of their answer.
    pub answers: BTreeMap<String, usize>,
    /// Requests to the upstream.
    pub requests: usize,
    /// Those that had their effect.
    pub effects: usize,
    /// Effects of idempotent operations that were repeated under the same key of the service.
    pub recognisable: usize,
    /// Entries of the log.
    pub entries: usize,
    /// Journals of the log.
    pub journals: usize,
    /// Calls and actions in the log.
    pub calls: usize,
    /// Those that have no end.
    pub open: usize,
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Everything that must not be.
    pub findings: Vec<Finding>,
    /// The keys whose outcome is unknown, or was said to be, each with its reason.
    pub unknown: Vec<Unknown>,
    /// The sizes of what was checked.
    pub counts: Counts,
}

impl Verdict {
    /// Returns the number of findings of this kind.
    #[must_use]
    pub fn count(&self, kind: FindingKind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    pub(crate) fn find(&mut self, kind: FindingKind, subject: impl Into<String>, text: impl Into<String>) {
        self.findings.push(Finding { kind, subject: subject.into(), text: text.into() });
    }
}

/// At most this many findings are printed.
const SHOWN: usize = 40;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { keys, values, failures, unanswered, answers, requests, effects, .. } = &self.counts;
        let Counts { recognisable, entries, journals, calls, open, .. } = &self.counts;
        writeln!(
            f,
            "keys       {keys}: {values} with a value, {failures} with a failure, {unanswered} without an outcome"
        )?;
        let answers: Vec<_> = answers.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        writeln!(f, "answers    {}", answers.join(", "))?;
        writeln!(
            f,
            "upstream   {requests} requests, {effects} effects, {recognisable} of them repeated under one key"
        )?;
        writeln!(
            f,
            "log        {entries} entries in {journals} journals, {calls} calls, {open} without an end"
        )?;
        let resolved = self.unknown.iter().filter(|unknown| unknown.is_resolved).count();
        writeln!(f, "unknown    {} keys, {resolved} of them answered later", self.unknown.len())?;
        for Unknown { key, call, reason, is_resolved } in &self.unknown {
            let later = if *is_resolved { "; answered later" } else { "" };
            writeln!(f, "  {key}: {call}: {reason}{later}")?;
        }
        writeln!(f, "lost       {}", self.count(FindingKind::Lost))?;
        writeln!(f, "doubled    {}", self.count(FindingKind::Doubled))?;
        write!(f, "findings   {}", self.findings.len())?;
        for finding in self.findings.iter().take(SHOWN) {
            write!(f, "\n  {finding}")?;
        }
        if self.findings.len() > SHOWN {
            write!(f, "\n  and {} more", self.findings.len() - SHOWN)?;
        }
        Ok(())
    }
}
