//! Every trap of wasmtime by name, with its meaning: the one table behind endings and the manual.

use cofferdam_core::failure::LimitKind;
use wasmtime::Trap;

/// The meaning of a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrapMeaning {
    /// A limit was hit.
    Limit(LimitKind),
    /// A fault of the connector's code; the word is `details.trap`.
    Trap(&'static str),
    /// A value passed between two parts of the connector that is not of its type.
    Malformed(&'static str),
    /// Wasmtime's or this host's own fault.
    HostFault,
}

macro_rules! traps {
    ($($trap:ident => $meaning:expr,)+) => {
        /// The traps by name.
        #[cfg(test)]
        pub(super) const TRAPS: &[(&str, Trap)] = &[$((stringify!($trap), Trap::$trap)),+];

        /// Returns the meaning of `trap`.
        pub(super) const fn meaning(trap: Trap) -> TrapMeaning {
            use TrapMeaning::{HostFault, Limit, Malformed, Trap as Code};
            match trap {
                $(Trap::$trap => $meaning,)+
                // Traps of later versions; a test fails until the table has them.
                _ => HostFault,
            }
        }
    };
}

traps! {
    OutOfFuel => Limit(LimitKind::Fuel),
    StackOverflow => Limit(LimitKind::Stack),
    AllocationTooLarge => Limit(LimitKind::Memory),
    UnreachableCodeReached => Code("unreachable"),
    MemoryOutOfBounds => Code("memory_out_of_bounds"),
    TableOutOfBounds => Code("table_out_of_bounds"),
    IndirectCallToNull => Code("indirect_call_to_null"),
    BadSignature => Code("bad_signature"),
    IntegerOverflow => Code("integer_overflow"),
    IntegerDivisionByZero => Code("integer_division_by_zero"),
    BadConversionToInteger => Code("bad_conversion_to_integer"),
    // The component model's rules about the callers of a component.
    CannotEnterComponent => Code("cannot_enter_component"),
    CannotLeaveComponent => Code("cannot_leave_component"),
    // Faults that the code between composed components finds in a value passed from one to the other.
    InvalidChar => Malformed("an invalid character"),
    StringOutOfBounds => Malformed("a string outside its memory"),
    ListOutOfBounds => Malformed("a list outside its memory"),
    InvalidDiscriminant => Malformed("an unknown case of a variant"),
    UnalignedPointer => Malformed("an unaligned pointer"),
    // Epochs are off, and so is the interpreter; the assertions are about wasmtime's own code.
    Interrupt => HostFault,
    DisabledOpcode => HostFault,
    DebugAssertStringEncodingFinished => HostFault,
    DebugAssertEqualCodeUnits => HostFault,
    DebugAssertPointerAligned => HostFault,
    DebugAssertUpperBitsUnset => HostFault,
    // Proposals that the engine refuses to compile: no guest reaches these, and if one did it would be its
    // own fault.
    HeapMisaligned => Code("heap_misaligned"),
    AtomicWaitNonSharedMemory => Code("atomic_wait_non_shared_memory"),
    NullReference => Code("null_reference"),
    ArrayOutOfBounds => Code("array_out_of_bounds"),
    CastFailure => Code("cast_failure"),
    UnhandledTag => Code("unhandled_tag"),
    UncaughtException => Code("uncaught_exception"),
    ContinuationAlreadyConsumed => Code("continuation_already_consumed"),
    NoAsyncResult => Code("no_async_result"),
    AsyncDeadlock => Code("async_deadlock"),
    CannotBlockSyncTask => Code("cannot_block_sync_task"),
    TaskCancelNotCancelled => Code("task_cancel_not_cancelled"),
    TaskCancelOrReturnTwice => Code("task_cancel_or_return_twice"),
    SubtaskCancelAfterTerminal => Code("subtask_cancel_after_terminal"),
    TaskReturnInvalid => Code("task_return_invalid"),
    WaitableSetDropHasWaiters => Code("waitable_set_drop_has_waiters"),
    WaitableSyncAndAsync => Code("waitable_sync_and_async"),
    SubtaskDropNotResolved => Code("subtask_drop_not_resolved"),
    ThreadNewIndirectInvalidType => Code("thread_new_indirect_invalid_type"),
    ThreadNewIndirectUninitialized => Code("thread_new_indirect_uninitialized"),
    CannotResumeThread => Code("cannot_resume_thread"),
    BackpressureOverflow => Code("backpressure_overflow"),
    UnsupportedCallbackCode => Code("unsupported_callback_code"),
    ConcurrentFutureStreamOp => Code("concurrent_future_stream_op"),
    ReferenceCountOverflow => Code("reference_count_overflow"),
    StreamOpTooBig => Code("stream_op_too_big"),
}

#[cfg(test)]
mod tests {
    use cofferdam_test_support::package::{hostile_names, hostile_text};

    use super::*;

    #[test]
    fn every_trap_that_wasmtime_has_is_in_the_table() {
        for byte in 0..=u8::MAX {
            let Some(trap) = Trap::from_u8(byte) else { continue };
            let named = TRAPS.iter().any(|(_, known)| *known == trap);
            assert!(named, "wasmtime has the trap {trap:?}: give it a meaning");
        }
        assert!(TRAPS.len() >= 50, "from_u8 no longer counts the traps");
    }

    /// The first trap of proposals that the engine refuses to compile; all later ones in the table belong to
    /// them too.
    const FIRST_THAT_IS_OFF: &str = "HeapMisaligned";

    #[test]
    fn every_trap_that_a_guest_can_cause_has_a_component_that_does() {
        let texts: Vec<_> = hostile_names().iter().map(|name| hostile_text(name)).collect();
        for (name, trap) in TRAPS.iter().take_while(|(name, _)| *name != FIRST_THAT_IS_OFF) {
            let TrapMeaning::Trap(word) = meaning(*trap) else { continue };
            let expects = format!(";; expects: connector_runtime_error trap {word}");
            let caused = texts.iter().any(|text| text.lines().nth(1) == Some(expects.as_str()));
            assert!(caused, "no component in tests/hostile ends with {name}");
        }
    }

    #[test]
    fn no_two_traps_share_a_word() {
        let words = TRAPS.iter().filter_map(|(_, trap)| match meaning(*trap) {
            TrapMeaning::Trap(word) => Some(word),
            _ => None,
        });
        let mut words: Vec<_> = words.collect();
        words.sort_unstable();
        let all = words.len();
        words.dedup();
        assert_eq!(words.len(), all);
    }
}
