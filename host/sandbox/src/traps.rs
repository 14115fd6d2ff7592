//! How a guest's ending is told apart: by the type of the error, in one exhaustive match.
//!
//! What is neither a marker of ours, nor a trap, nor a type or words of wasmtime's that are known to be a
//! guest's doing is the host's fault: a machine that refuses a mapping must not be blamed on a connector.

use cofferdam_core::failure::{LimitHit, LimitKind, RuntimeFault};
use cofferdam_core::limits::{self, Limits};
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi_http::FieldMapError;

use super::limiter::Refused;
use super::memory::MemoryAccount;
use super::trap_table::{Meaning, meaning};
use super::words::{self, HANDLE_MISUSE, HOST_CALL_MISUSE};

/// What an error that ended the guest means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// A limit was hit.
    Limit(LimitHit),
    /// The connector's own fault, or (`internal`) the host's.
    Fault(RuntimeFault),
}

/// Classifies the error. A guest that was refused `memory` usually traps with something else.
pub(super) fn classify(
    error: &wasmtime::Error,
    memory: &MemoryAccount,
    limits: &Limits,
    fuel_used: u64,
) -> Ending {
    if let Some(Refused(hit)) = error.downcast_ref::<Refused>() {
        return Ending::Limit(*hit);
    }
    if let Some(hit) = memory.hit() {
        return Ending::Limit(hit);
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return of_trap(*trap, limits, fuel_used);
    }
    if error.is::<wasmtime_wasi::I32Exit>() {
        return Ending::Fault(RuntimeFault::Exit);
    }
    if let Some(error) = error.downcast_ref::<ResourceTableError>() {
        return of_table(error);
    }
    if let Some(error) = error.downcast_ref::<FieldMapError>() {
        return of_fields(*error);
    }
    if let Some(what) = not_a_value(error) {
        return Ending::Fault(RuntimeFault::OutputMalformed(what));
    }
    match words::ending(&error.root_cause().to_string()) {
        // A host call gets no more than what is left of the memory.
        Some(Ending::Limit(hit))
            if hit.limit == LimitKind::HostTransfer && memory.room() < limits::HOST_TRANSFER_BYTES as u64 =>
        {
            let Refused(hit) = memory.exhausted();
            Ending::Limit(hit)
        }
        Some(ending) => ending,
        None => Ending::Fault(RuntimeFault::Internal),
    }
}

fn of_trap(trap: Trap, limits: &Limits, fuel_used: u64) -> Ending {
    match meaning(trap) {
        Meaning::Limit(limit) => Ending::Limit(match limit {
            LimitKind::Fuel => LimitHit::new(limit, limits.fuel(), fuel_used),
            // The stack is full; the frame that did not fit is not known.
            LimitKind::Stack => {
                let stack = limits::STACK_BYTES as u64;
                LimitHit::new(limit, stack, stack)
            }
            _ => LimitHit::at_least_one_over(limit, limits.memory()),
        }),
        Meaning::Trap(word) => Ending::Fault(RuntimeFault::Trap(word)),
        Meaning::Malformed(what) => Ending::Fault(RuntimeFault::OutputMalformed(what)),
        Meaning::HostFault => Ending::Fault(RuntimeFault::Internal),
    }
}

/// The host's own table of resources.
fn of_table(error: &ResourceTableError) -> Ending {
    match error {
        ResourceTableError::Full => {
            Ending::Limit(LimitHit::at_least_one_over(LimitKind::Handles, limits::HANDLES as u64))
        }
        // Used after it was given away, or dropped before what was made from it.
        _ => Ending::Fault(RuntimeFault::Trap(HANDLE_MISUSE)),
    }
}

/// The fields of a message that the guest puts together. What it can set right itself it is told.
fn of_fields(error: FieldMapError) -> Ending {
    match error {
        FieldMapError::TooManyFields | FieldMapError::TotalSizeTooBig => {
            let allowed = limits::HEADER_BYTES as u64;
            Ending::Limit(LimitHit::at_least_one_over(LimitKind::RequestHeaders, allowed))
        }
        _ => Ending::Fault(RuntimeFault::Trap(HOST_CALL_MISUSE)),
    }
}

/// What the standard library finds in bytes that should be text.
fn not_a_value(error: &wasmtime::Error) -> Option<&'static str> {
    let text = error.is::<std::str::Utf8Error>()
        || error.is::<std::string::FromUtf8Error>()
        || error.is::<std::char::DecodeUtf16Error>();
    match error.is::<std::char::CharTryFromError>() {
        true => Some("an invalid character"),
        false => text.then_some("text that is not in its encoding"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use cofferdam_core::limits::{Ceilings, LimitRequest};

    fn classified(error: impl Into<wasmtime::Error>) -> Ending {
        let none = LimitRequest::default();
        let limits = Limits::resolve(&Ceilings::default(), &none, &none, &none, &Default::default()).unwrap();
        classify(&error.into(), &MemoryAccount::new(limits.memory()), &limits, 7)
    }

    #[test]
    fn what_the_machine_refuses_is_never_the_connectors_fault() {
        for error in [
            wasmtime::Error::from(std::io::Error::from_raw_os_error(12)).context("mmap failed"),
            wasmtime::Error::from(rustix::io::Errno::NOMEM),
            wasmtime::Error::from(rustix::io::Errno::NOMEM).context("failed to allocate a stack"),
            wasmtime::Error::msg("something that a later version says"),
            wasmtime::Error::from(Trap::Interrupt),
        ] {
            let text = format!("{error:#}");
            assert_eq!(classified(error), Ending::Fault(RuntimeFault::Internal), "{text}");
        }
    }

    #[test]
    fn a_marker_is_found_below_what_was_added_to_it() {
        let hit = LimitHit::new(LimitKind::Memory, 1, 2);
        let error = wasmtime::Error::from(Refused(hit)).context("while instantiating");
        assert_eq!(classified(error), Ending::Limit(hit));
        let error = wasmtime::Error::from(Trap::OutOfFuel).context("error while executing");
        let Ending::Limit(hit) = classified(error) else { unreachable!("fuel is a limit") };
        assert_eq!((hit.limit, hit.used), (LimitKind::Fuel, 7));
    }
}
