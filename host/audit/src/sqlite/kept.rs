//! Ends of calls that could not be written and that no caller retries: stored, and written first as soon as
//! possible.
//!
//! A disk that is full for a minute must not leave calls incomplete that have ended. The ends are stored in
//! memory: if the process ends first, those calls are incomplete, which matches the audit log.

use std::collections::VecDeque;

use super::write_command::WriteCommand;
use crate::seal::Sealed;

/// Most orders that are kept, and most bytes of theirs.
const ORDERS: usize = 4_096;
const BYTES: usize = 32 * 1024 * 1024;

/// The orders, in the order they were given.
#[derive(Default)]
pub(super) struct Kept {
    orders: VecDeque<WriteCommand>,
    bytes: usize,
}

/// Returns a copy of a command that adds to a call, to be kept if it fails and no caller retries it.
pub(super) fn worth_keeping(order: &WriteCommand) -> Option<WriteCommand> {
    match order {
        WriteCommand::Append { audit_id, entry, .. } => {
            Some(WriteCommand::Append { audit_id: audit_id.clone(), entry: entry.clone(), reply: None })
        }
        WriteCommand::Close { open, call, .. } => {
            Some(WriteCommand::Close { open: open.clone(), call: call.clone(), reply: None })
        }
        _ => None,
    }
}

/// Returns true if a failed command would be lost: an end, whose caller gives up after a while, and everything that
/// no caller waits for.
pub(super) fn is_lost(order: &WriteCommand, has_waiter: bool) -> bool {
    matches!(order, WriteCommand::Close { .. }) || !has_waiter
}

/// Returns true if an order contains the beginning of a call.
pub(super) fn begins(order: &WriteCommand) -> bool {
    matches!(order, WriteCommand::Close { open: Some(_), .. })
}

impl Kept {
    pub(super) fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// Keeps an order that is worth it. An end that is given again meanwhile is kept once.
    pub(super) fn keep(&mut self, order: WriteCommand) {
        let bytes = size(&order);
        if let WriteCommand::Close { call: end, .. } = &order {
            let again = |kept: &WriteCommand| matches!(kept, WriteCommand::Close { call, .. } if call.audit_id == end.audit_id);
            if self.orders.iter().any(again) {
                return;
            }
        }
        if self.orders.len() >= ORDERS || self.bytes.saturating_add(bytes) > BYTES {
            tracing::error!(target: "cofferdam::audit", "too much waits to be written: the end of a call is lost, and the call is incomplete");
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.orders.push_back(order);
    }

    /// All of them, to be tried; what fails again is to be kept again.
    pub(super) fn take(&mut self) -> Vec<WriteCommand> {
        self.bytes = 0;
        std::mem::take(&mut self.orders).into()
    }
}

fn size(order: &WriteCommand) -> usize {
    let sealed = |sealed: &Option<Sealed>| sealed.as_ref().map_or(0, |sealed| sealed.bytes().len());
    match order {
        WriteCommand::Append { entry, .. } => entry.body().len(),
        WriteCommand::Close { open, call, .. } => {
            let open = open.as_ref().map_or(0, |open| open.entry.body().len() + sealed(&open.request));
            call.entry.body().len() + sealed(&call.outcome) + open
        }
        _ => 0,
    }
}
