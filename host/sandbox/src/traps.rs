//! Classifies the endings of a guest: traps by their code, everything else by its type, and by its text only where
//! wasmtime 48 has no type.
//!
//! An ending by text is one of three things: a budget of wasmtime's that is used up, the canonical ABI refusing a value or
//! a handle of the guest, or a host function refusing its use. If the text changes, the ending becomes `internal`, never
//! the connector's fault or a wrong limit, and the test of the component in `tests/hostile` that causes it fails.

use cofferdam_core::failure::{LimitHit, LimitKind, RuntimeFault};
use cofferdam_core::limits::{self, Limits};
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi_http::FieldMapError;

use super::memory::{GrowthRefusal, MemoryAccount};

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
        return classify_trap(*trap, limits, fuel_used);
    }
    if error.is::<wasmtime_wasi::I32Exit>() {
        return CallEnding::Fault(RuntimeFault::Exit);
    }
    if let Some(error) = error.downcast_ref::<ResourceTableError>() {
        return classify_table_error(error);
    }
    if let Some(error) = error.downcast_ref::<FieldMapError>() {
        return classify_fields_error(*error);
    }
    if let Some(what) = not_a_value(error) {
        return CallEnding::Fault(RuntimeFault::OutputMalformed(what));
    }
    match ending(&error.root_cause().to_string()) {
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

fn classify_trap(trap: Trap, limits: &Limits, fuel_used: u64) -> CallEnding {
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
fn classify_table_error(error: &ResourceTableError) -> CallEnding {
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
fn classify_fields_error(error: FieldMapError) -> CallEnding {
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

/// The misuse of a host function or a handle by a guest; `details.trap`.
pub(super) const HANDLE_MISUSE: &str = "handle_misuse";
pub(super) const HOST_CALL_MISUSE: &str = "host_call_misuse";

/// The meaning of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextMeaning {
    Limit(LimitKind, u64),
    Named(&'static str),
    Malformed(&'static str),
}

use TextMeaning::{Limit, Malformed, Named};

const POINTER: TextMeaning = Malformed("a pointer outside its memory");
const UNALIGNED: TextMeaning = Malformed("an unaligned pointer");
const STRING: TextMeaning = Malformed("a string outside its memory");
const LIST: TextMeaning = Malformed("a list outside its memory");
const CASE: TextMeaning = Malformed("an unknown case of a variant");
const ENCODING: TextMeaning = Malformed("text that is not in its encoding");
const NO_ROOM: TextMeaning = Malformed("no room for a value it is given");

/// The start of the text, its meaning, and the component in `tests/hostile` that causes it. The first match
/// wins.
const WORDS: &[(&str, TextMeaning, &str)] = &[
    (
        "too much data is being copied",
        Limit(LimitKind::HostTransfer, limits::HOST_TRANSFER_BYTES as u64),
        "huge-text",
    ),
    ("cannot allocate another handle", Limit(LimitKind::Handles, limits::HANDLES as u64), "makes-resources"),
    (
        "cannot lend resource: store handle limit",
        Limit(LimitKind::Handles, limits::HANDLES as u64),
        "lends-what-it-hoards",
    ),
    // The instances that wasmtime puts between composed components; the others are counted before the
    // instantiation.
    (
        "resource limit exceeded: instance count",
        Limit(LimitKind::Instances, limits::INSTANCES as u64),
        "many-adapters",
    ),
    ("return pointer not aligned", UNALIGNED, "result-unaligned"),
    ("string pointer not aligned", UNALIGNED, "logs-unaligned"),
    ("list pointer is not aligned", UNALIGNED, "polls-unaligned"),
    ("pointer not aligned", UNALIGNED, "points-at-an-odd-place"),
    ("pointer out of bounds", POINTER, "result-outside"),
    ("string pointer/length out of bounds", STRING, "text-outside"),
    ("list pointer/length out of bounds", LIST, "polls-outside"),
    ("discriminant ", CASE, "unknown-case"),
    ("unexpected discriminant", CASE, "unknown-level"),
    ("invalid expected discriminant", CASE, "exits-unknowably"),
    ("invalid option discriminant", CASE, "unknown-option"),
    ("invalid utf8 encoding", ENCODING, "passes-text-not-utf8"),
    ("invalid utf16 encoding", ENCODING, "passes-text-not-utf16"),
    ("realloc return: ", NO_ROOM, "allocates-outside"),
    ("unknown handle index", Named(HANDLE_MISUSE), "unknown-handle"),
    ("handle index ", Named(HANDLE_MISUSE), "handle-of-another-type"),
    ("borrow handles still remain", Named(HANDLE_MISUSE), "keeps-a-borrow"),
    ("cannot lift own resource from a borrow", Named(HANDLE_MISUSE), "gives-away-a-borrow"),
    ("empty poll list", Named(HOST_CALL_MISUSE), "polls-nothing"),
    ("Buffer too large for blocking-write", Named(HOST_CALL_MISUSE), "writes-too-much-at-once"),
    ("cannot write more zeroes", Named(HOST_CALL_MISUSE), "writes-too-many-zeroes"),
    ("write exceeded budget", Named(HOST_CALL_MISUSE), "writes-over-budget"),
];

/// Returns the meaning of an error's text, if it is known.
pub(super) fn ending(words: &str) -> Option<CallEnding> {
    let (_, meaning, _) = WORDS.iter().find(|(begin, ..)| words.starts_with(begin))?;
    Some(match *meaning {
        Limit(limit, configured) => CallEnding::Limit(LimitHit::at_least_one_over(limit, configured)),
        Named(word) => CallEnding::Fault(RuntimeFault::Trap(word)),
        Malformed(what) => CallEnding::Fault(RuntimeFault::OutputMalformed(what)),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use cofferdam_core::limits::{LimitCeilings, LimitRequest};
    use cofferdam_test_support::package::{hostile_names, hostile_text};

    use super::*;

    fn classified(error: impl Into<wasmtime::Error>) -> CallEnding {
        let none = LimitRequest::default();
        let limits =
            Limits::resolve(&LimitCeilings::default(), &none, &none, &none, &Default::default()).unwrap();
        classify(&error.into(), &MemoryAccount::new(limits.memory()), &limits, 7)
    }

    #[test]
    fn machine_errors_are_never_the_connectors_fault() {
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
    fn markers_are_found_beneath_added_context() {
        let hit = LimitHit::new(LimitKind::Memory, 1, 2);
        let error = wasmtime::Error::from(GrowthRefusal(hit)).context("while instantiating");
        assert_eq!(classified(error), CallEnding::Limit(hit));
        let error = wasmtime::Error::from(Trap::OutOfFuel).context("error while executing");
        let CallEnding::Limit(hit) = classified(error) else { unreachable!("fuel is a limit") };
        assert_eq!((hit.limit, hit.used), (LimitKind::Fuel, 7));
    }
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
    fn every_possible_trap_has_a_hostile_component() {
        let texts: Vec<_> = hostile_names().iter().map(|name| hostile_text(name)).collect();
        for (name, trap) in TRAPS.iter().take_while(|(name, _)| *name != FIRST_THAT_IS_OFF) {
            let TrapMeaning::Trap(word) = meaning(*trap) else { continue };
            let expects = format!(";; expects: connector_runtime_error trap {word}");
            let caused = texts.iter().any(|text| text.lines().nth(1) == Some(expects.as_str()));
            assert!(caused, "no component in tests/hostile ends with {name}");
        }
    }

    #[test]
    fn trap_codes_are_unique() {
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
    #[test]
    fn every_error_text_has_a_hostile_component() {
        for (begin, meaning, name) in WORDS {
            let text = hostile_text(name);
            let mut head = text.lines().skip(1);
            let (expects, words) = (head.next().unwrap_or_default(), head.next().unwrap_or_default());
            assert_eq!(words, format!(";; words: {}", begin.trim_end()), "{name}");
            let code = match meaning {
                Limit(kind, _) => kind.name(),
                Named(word) => word,
                Malformed(_) => "output_malformed",
            };
            assert!(expects.ends_with(code), "{name}: {expects}");
        }
    }
}
