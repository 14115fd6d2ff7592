//! Commands to the writer, and their replies.

use cofferdam_core::event::operator::OperatorEvent;
use cofferdam_core::failure::AuditId;
use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::command::{CloseCall, KeyClaim, KeyState, OpenCall, OpenOutcome, Pruned, ResolveCall};
use crate::entry::Entry;
use crate::error::AuditError;
use crate::verify::Accepted;

/// The channel of a reply.
pub(super) type Reply<T> = oneshot::Sender<Result<T, AuditError>>;

/// A write or a query. Commands are carried out in the order of their submission, many in one commit. The reply is
/// sent when the effect is durable.
pub(super) enum WriteCommand {
    /// Opens a call. Opening a call that is open already changes nothing.
    Open { call: Box<OpenCall>, reply: Reply<OpenOutcome> },
    /// Adds events to an open call.
    Append { audit_id: AuditId, entry: Entry, reply: Option<Reply<()>> },
    /// Ends a call. With `open`, the call is opened first, in the same commit.
    Close { open: Option<Box<OpenCall>>, call: Box<CloseCall>, reply: Option<Reply<()>> },
    /// Resolves a call that never ended. The reply is false if there was nothing left to resolve.
    Resolve { audit_id: AuditId, decision: Box<ResolveCall>, reply: Reply<bool> },
    /// Records a change that an operator makes.
    Record { at: Timestamp, event: Box<OperatorEvent<'static>>, reply: Reply<()> },
    /// Looks up the state of a key.
    KeyState { claim: KeyClaim, reply: Reply<KeyState> },
    /// Signs a checkpoint of the chain as it is now.
    Sign { reply: Reply<String> },
    /// Records and signs that the operator accepts these flaws.
    Accept { flaws: Vec<Accepted>, reply: Reply<String> },
    /// Removes the calls that were received before `before`, from the oldest on, as far as none of them is needed.
    Prune { before: Timestamp, dry_run: bool, reply: Reply<Pruned> },
    /// Changes nothing. The reply is sent when all earlier commands are durable.
    Flush { reply: Reply<()> },
}

impl WriteCommand {
    /// Returns true if the command is correct only on a log that has every key and every call of the past.
    pub(super) fn depends_on_the_past(&self) -> bool {
        match self {
            Self::Open { call, .. } => call.key.is_some() || call.resumes.is_some(),
            Self::KeyState { .. } => true,
            _ => false,
        }
    }

    /// Returns true if the command is about the log itself, and has transactions of its own.
    pub(super) fn is_of_the_log(&self) -> bool {
        matches!(self, Self::Sign { .. } | Self::Accept { .. } | Self::Prune { .. })
    }
}
