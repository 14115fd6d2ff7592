//! Approvals: calls that wait for a person, the answers to them, and their use, each by one call.
//!
//! An approval is for one binding: the SHA-256 of all that the person approves. A store only ever loses approvals
//! safely: what it does not have, or what was changed by anything but a host, is not approved.

mod approval;
mod file;
#[cfg(test)]
mod file_tests;
mod id;
mod row;
mod ticket;

use cofferdam_core::failure::AuditId;

pub use approval::{
    Approval, ApprovalBinding, ApprovalState, ApprovalStep, ShownArguments, StoredApproval, decide_approval,
};
pub use file::ApprovalFile;
pub use id::ApprovalId;
pub use row::{ApprovalRow, ApprovalSeal, has_approval_room, is_approval_waiting, shown_bytes};
pub use ticket::ApprovalTickets;

use crate::command::LogTime;
use crate::log::LogFuture;

/// The most requests that wait for an answer. A further call that needs an approval is refused.
pub const MAX_WAITING: u64 = 10_000;

/// The most bytes of shown arguments of the requests that wait for an answer.
pub const MAX_WAITING_BYTES: u64 = 128 << 20;

/// The approvals of a home, or of the hosts that share an audit log.
pub trait ApprovalStore: Send + Sync + 'static {
    /// Uses the approval of this binding for the call, or else asks for one. Of several calls, one gets an approval
    /// that is for one call. The result is durable when the future completes; it is carried out even if the future is
    /// dropped.
    fn request(&self, request: StoredApproval, call: AuditId, now: LogTime) -> LogFuture<ApprovalVerdict>;

    /// Answers a request that waits, or withdraws an approval that is not used. Of several answers, one takes effect.
    fn answer(&self, id: ApprovalId, answer: PersonAnswer, now: LogTime) -> LogFuture<AnswerOutcome>;

    /// Returns all stored approvals without their arguments, the oldest first.
    fn list(&self) -> LogFuture<Vec<StoredApproval>>;

    /// Returns one approval with its arguments.
    fn get(&self, id: ApprovalId) -> LogFuture<Option<StoredApproval>>;
}

/// The result of asking for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// A person approved it, and the call may run.
    Approved {
        /// The approval.
        id: ApprovalId,
        /// The person.
        by: String,
        /// True if further calls may run with it; false if this call used it up.
        same_arguments: bool,
    },
    /// It waits for an answer.
    Waiting(Box<Approval>),
    /// A person denied it.
    Denied(ApprovalId),
    /// As many requests wait as the store keeps.
    Full,
}

/// The answer of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonAnswer {
    /// The decision.
    pub decision: Decision,
    /// The person.
    pub by: String,
    /// The reason that the person gave.
    pub reason: Option<String>,
}

/// The decision of a person about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// One call may run, within this time.
    ApproveOnce(std::time::Duration),
    /// All calls with the same arguments may run, within this time, whatever their idempotency keys.
    ApproveSameArguments(std::time::Duration),
    /// The call is not to be run.
    Deny,
}

/// The result of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerOutcome {
    /// It takes effect.
    Taken(Box<Approval>),
    /// It has no effect: the request was answered before, or has ended.
    TooLate(Box<Approval>),
    /// There is no such request.
    Missing,
}
