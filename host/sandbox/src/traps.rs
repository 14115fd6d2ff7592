//! Classification of a guest's ending by the type of the error, in one exhaustive match.
//!
//! An error that is neither one of our markers, nor a trap, nor a type or text of wasmtime's known to be
//! caused by guests is the host's fault: a machine that refuses a mapping must not be blamed on a connector.

use cofferdam_core::failure::{LimitHit, LimitKind, RuntimeFault};
use cofferdam_core::limits::{self, Limits};
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi_http::FieldMapError;

use super::limiter::GrowthRefusal;
use super::memory::MemoryAccount;
use super::trap_table::{TrapMeaning, meaning};
use super::words::{self, HANDLE_MISUSE, HOST_CALL_MISUSE};

/// The meaning of an error that ended the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallEnding {
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
) -> CallEnding {
    if let Some(GrowthRefusal(hit)) = error.downcast_ref::<GrowthRefusal>() {
        return CallEnding::Limit(*hit);
    }
    if let Some(hit) = memory.hit() {
        return CallEnding::Limit(hit);
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return of_trap(*trap, limits, fuel_used);
    }
    if error.is::<wasmtime_wasi::I32Exit>() {
        return CallEnding::Fault(RuntimeFault::Exit);
    }
    if let Some(error) = error.downcast_ref::<ResourceTableError>() {
        return of_table(error);
    }
    if let Some(error) = error.downcast_ref::<FieldMapError>() {
        return of_fields(*error);
    }
    if let Some(what) = not_a_value(error) {
        return CallEnding::Fault(RuntimeFault::OutputMalformed(what));
    }
    match words::ending(&error.root_cause().to_string()) {
        // A host call gets at most the rest of the memory.
        Some(CallEnding::Limit(hit))
            if hit.limit == LimitKind::HostTransfer && memory.room() < limits::HOST_TRANSFER_BYTES as u64 =>
        {
            let GrowthRefusal(hit) = memory.exhausted();
            CallEnding::Limit(hit)
        }
        Some(ending) => ending,
        None => CallEnding::Fault(RuntimeFault::Internal),
    }
}

fn of_trap(trap: Trap, limits: &Limits, fuel_used: u64) -> CallEnding {
    match meaning(trap) {
        TrapMeaning::Limit(limit) => CallEnding::Limit(match limit {
            LimitKind::Fuel => LimitHit::new(limit, limits.fuel(), fuel_used),
            // The stack is full; the frame that did not fit is not known.
            LimitKind::Stack => {
                let stack = limits::STACK_BYTES as u64;
                LimitHit::new(limit, stack, stack)
            }
            _ => LimitHit::at_least_one_over(limit, limits.memory()),
        }),
        TrapMeaning::Trap(word) => CallEnding::Fault(RuntimeFault::Trap(word)),
        TrapMeaning::Malformed(what) => CallEnding::Fault(RuntimeFault::OutputMalformed(what)),
        TrapMeaning::HostFault => CallEnding::Fault(RuntimeFault::Internal),
    }
}

/// Classifies an error of the host's own table of resources.
fn of_table(error: &ResourceTableError) -> CallEnding {
    match error {
        ResourceTableError::Full => {
            CallEnding::Limit(LimitHit::at_least_one_over(LimitKind::Handles, limits::HANDLES as u64))
        }
        // Used after it was passed on, or dropped before an object made from it.
        _ => CallEnding::Fault(RuntimeFault::Trap(HANDLE_MISUSE)),
    }
}

/// Classifies an error of the fields of a message that the guest assembles. Errors that the guest can correct
/// are returned to it.
fn of_fields(error: FieldMapError) -> CallEnding {
    match error {
        FieldMapError::TooManyFields | FieldMapError::TotalSizeTooBig => {
            let allowed = limits::HEADER_BYTES as u64;
            CallEnding::Limit(LimitHit::at_least_one_over(LimitKind::RequestHeaders, allowed))
        }
        _ => CallEnding::Fault(RuntimeFault::Trap(HOST_CALL_MISUSE)),
    }
}

/// Returns the flaw that the standard library finds in bytes that should be text.
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
    use cofferdam_core::limits::{LimitCeilings, LimitRequest};

    fn classified(error: impl Into<wasmtime::Error>) -> CallEnding {
        let none = LimitRequest::default();
        let limits =
            Limits::resolve(&LimitCeilings::default(), &none, &none, &none, &Default::default()).unwrap();
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
            assert_eq!(classified(error), CallEnding::Fault(RuntimeFault::Internal), "{text}");
        }
    }

    #[test]
    fn a_marker_is_found_below_what_was_added_to_it() {
        let hit = LimitHit::new(LimitKind::Memory, 1, 2);
        let error = wasmtime::Error::from(GrowthRefusal(hit)).context("while instantiating");
        assert_eq!(classified(error), CallEnding::Limit(hit));
        let error = wasmtime::Error::from(Trap::OutOfFuel).context("error while executing");
        let CallEnding::Limit(hit) = classified(error) else { unreachable!("fuel is a limit") };
        assert_eq!((hit.limit, hit.used), (LimitKind::Fuel, 7));
    }
}
