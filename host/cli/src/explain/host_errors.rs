//! The host's own errors: who mends each, and how. What they mean is said where they are defined.

use cofferdam_core::error::HostErrorKind;

use super::code_info::{CodeInfo, FixOwner, RetryAdvice, TermKind};

pub(super) fn of_kind(kind: HostErrorKind) -> CodeInfo {
    let (again, mended_by, remedy) = advice(kind);
    CodeInfo {
        word: kind.code(),
        kind: if kind == HostErrorKind::Cancelled { TermKind::Outcome } else { TermKind::HostError },
        class: None,
        boundary: &[],
        meaning: kind.meaning(),
        again,
        cause: None,
        mended_by,
        remedy,
        exit_code: Some(kind.exit_code()),
    }
}

fn advice(kind: HostErrorKind) -> (RetryAdvice, FixOwner, &'static str) {
    use FixOwner::{Author, Caller, Operator};
    use RetryAdvice::{Backoff, Depends, No};
    match kind {
        HostErrorKind::Validation => {
            (No, Caller, "Correct what the message names: it has the field and what would be right.")
        }
        HostErrorKind::ContractVersion => {
            (No, Author, "Build the connector against the contract that this host has, or use a newer host.")
        }
        HostErrorKind::ConnectorNotFound => {
            (No, Operator, "Install the connector, or name one that `cofferdam list` shows.")
        }
        HostErrorKind::ActionNotFound => {
            (No, Operator, "Add the action, or name one that `cofferdam action list` shows.")
        }
        HostErrorKind::OpNotFound => {
            (No, Caller, "Name an operation that `cofferdam inspect` shows; the message has the nearest.")
        }
        HostErrorKind::InputUnreadable => (No, Caller, "Name a file that is there and can be read."),
        HostErrorKind::Conflict => (No, Operator, "Choose another name, or remove what has this one."),
        HostErrorKind::Downgrade => (
            No,
            Operator,
            "Install a newer version, or say with --allow-downgrade that the older one is meant.",
        ),
        HostErrorKind::CompileRefused => {
            (No, Author, "Make the component smaller, or let the operator raise what compiling may take.")
        }
        HostErrorKind::KeyringInvalid => {
            (No, Operator, "Mend keyring.toml as the message says; nothing is trusted until then.")
        }
        HostErrorKind::BindingNotFound => (No, Operator, "Bind it with `cofferdam binding set`."),
        HostErrorKind::VaultLocked => {
            (No, Operator, "Give the passphrase or the key file with which the vault was locked.")
        }
        HostErrorKind::VaultUnusable => (
            No,
            Operator,
            "Bring the vault's file back from a copy, or mend its permissions, as the message says.",
        ),
        HostErrorKind::RegistryUnavailable => {
            (No, Operator, "Make the home directory readable and writable, and see that the disk has room.")
        }
        HostErrorKind::CircuitsUnavailable => {
            (No, Operator, "Make the directory `circuits` of the home readable and writable.")
        }
        HostErrorKind::AuditUnavailable => (
            Backoff,
            Operator,
            "Make `audit.db` of the home writable and see that the disk has room; nothing was run.",
        ),
        HostErrorKind::OutcomeUnknown => (
            No,
            Operator,
            "Look at the service whether it was done, then decide with `cofferdam recover`; calling again may do it twice.",
        ),
        HostErrorKind::AuditNotFound => (No, Caller, "Name a call that `cofferdam audit list` shows."),
        HostErrorKind::NotReplayable => (
            No,
            Caller,
            "See with `cofferdam audit show` what is known of the call; where it was cut short, `cofferdam recover` decides.",
        ),
        HostErrorKind::IdempotencyConflict => (No, Caller, "Give a new call a new idempotency key."),
        HostErrorKind::InProgress => (Backoff, Caller, "Wait for the call that runs, or ask again later."),
        HostErrorKind::AuditTampered => (
            No,
            Operator,
            "Keep the record as it is, and find out who changed it; `cofferdam audit verify` names what. Exports and checkpoints that were kept elsewhere say what stood there.",
        ),
        HostErrorKind::OutputUnwritable => (No, Caller, "Name a place that can be written."),
        HostErrorKind::Busy => (Backoff, Caller, "Ask for less at once, or try again later."),
        HostErrorKind::Cancelled => (
            Depends,
            Caller,
            "Nothing went wrong: whoever asked for the call ended it. It may have had effects, where an attempt was begun.",
        ),
        HostErrorKind::Tool => {
            (No, Operator, "Install the tool that the message names, or mend its own error.")
        }
        HostErrorKind::Configuration => {
            (No, Operator, "Correct config.toml, or the option, that the message names.")
        }
        HostErrorKind::Internal => (
            No,
            Operator,
            "A fault of the host: please report it, with what its log says under the request's id.",
        ),
    }
}
