//! How a guest's ending is told apart: by the type of the error, and by its text only where wasmtime gives none.

use wasmtime::Trap;
use wasmtime::component::ResourceTableError;

use super::limiter::Refused;
use crate::failure::{LimitHit, LimitKind, RuntimeFault};
use crate::limits::{self, Limits};

/// What an error that ended the guest means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// A limit was hit.
    Limit(LimitHit),
    /// The connector's own fault.
    Fault(RuntimeFault),
}

/// Classifies the error. `hit` is what the limiter refused in this attempt: a guest that was refused
/// memory usually traps with something else.
pub(super) fn classify(
    error: &wasmtime::Error,
    hit: Option<LimitHit>,
    limits: &Limits,
    fuel_used: u64,
) -> Ending {
    if let Some(Refused(hit)) = error.downcast_ref::<Refused>() {
        return Ending::Limit(*hit);
    }
    if let Some(hit) = hit {
        return Ending::Limit(hit);
    }
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return classify_trap(*trap, limits, fuel_used);
    }
    if error.is::<wasmtime_wasi::I32Exit>() {
        return Ending::Fault(RuntimeFault::Exit);
    }
    match error.downcast_ref::<ResourceTableError>() {
        Some(ResourceTableError::Full) => {
            return Ending::Limit(just_over(LimitKind::Handles, limits::HANDLES));
        }
        // Used after it was given away, or dropped before what was made from it.
        Some(_) => return Ending::Fault(RuntimeFault::Trap("resource_misuse")),
        None => {}
    }
    if error.is::<std::io::Error>() {
        // The machine refused the host something (memory for a stack, a mapping): not the connector's fault.
        return Ending::Fault(RuntimeFault::Internal);
    }
    match UNTYPED.iter().find(|(text, ..)| error.root_cause().to_string().starts_with(text)) {
        Some((_, limit, configured)) => Ending::Limit(just_over(*limit, *configured)),
        // What is left is the canonical ABI refusing a value that the guest hands over.
        None => malformed("a value that is not of its type"),
    }
}

/// Limits that wasmtime 48 reports in words alone. Each has a component in `tests/hostile`, so that a
/// change of the words fails a test.
const UNTYPED: [(&str, LimitKind, usize); 7] = [
    ("requested len", LimitKind::HostTransfer, limits::RANDOM_BYTES),
    ("too much data is being copied", LimitKind::HostTransfer, limits::HOST_TRANSFER_BYTES),
    ("resource limit exceeded: instance count", LimitKind::Instances, limits::INSTANCES),
    ("resource limit exceeded: memory count", LimitKind::Memories, limits::MEMORIES),
    ("resource limit exceeded: table count", LimitKind::Tables, limits::TABLES),
    ("cannot allocate another handle", LimitKind::Handles, limits::HANDLES),
    ("cannot lend resource", LimitKind::Handles, limits::HANDLES),
];

fn just_over(limit: LimitKind, configured: usize) -> LimitHit {
    let configured = configured as u64;
    LimitHit { limit, configured, used: configured + 1 }
}

fn classify_trap(trap: Trap, limits: &Limits, fuel_used: u64) -> Ending {
    let stack = limits::STACK_BYTES as u64;
    let name = match trap {
        Trap::OutOfFuel => {
            let hit = LimitHit { limit: LimitKind::Fuel, configured: limits.fuel(), used: fuel_used };
            return Ending::Limit(hit);
        }
        Trap::StackOverflow => {
            return Ending::Limit(LimitHit { limit: LimitKind::Stack, configured: stack, used: stack });
        }
        Trap::AllocationTooLarge => {
            let asked = limits.memory().saturating_add(1);
            return Ending::Limit(LimitHit {
                limit: LimitKind::Memory,
                configured: limits.memory(),
                used: asked,
            });
        }
        Trap::UnreachableCodeReached => "unreachable",
        Trap::MemoryOutOfBounds => "memory_out_of_bounds",
        Trap::HeapMisaligned => "heap_misaligned",
        Trap::TableOutOfBounds => "table_out_of_bounds",
        Trap::IndirectCallToNull => "indirect_call_to_null",
        Trap::BadSignature => "bad_signature",
        Trap::IntegerOverflow => "integer_overflow",
        Trap::IntegerDivisionByZero => "integer_division_by_zero",
        Trap::BadConversionToInteger => "bad_conversion_to_integer",
        Trap::CannotEnterComponent => "cannot_enter_component",
        Trap::CannotLeaveComponent => "cannot_leave_component",
        // What the canonical ABI finds in a value that the guest hands over.
        Trap::InvalidChar => return malformed("an invalid character"),
        Trap::StringOutOfBounds => return malformed("a string outside its memory"),
        Trap::ListOutOfBounds => return malformed("a list outside its memory"),
        Trap::InvalidDiscriminant => return malformed("an unknown case of a variant"),
        Trap::UnalignedPointer => return malformed("an unaligned pointer"),
        // Proposals that the engine does not accept, and what later versions of wasmtime add.
        _ => "other",
    };
    Ending::Fault(RuntimeFault::Trap(name))
}

fn malformed(what: &'static str) -> Ending {
    Ending::Fault(RuntimeFault::OutputMalformed(what))
}
