//! The endings for which wasmtime 48 has words and no type: the only place that reads an error's text.
//!
//! Each is one of three things: a budget of wasmtime's that is used up (it says so in words alone), the
//! canonical ABI refusing a value or a handle that a guest hands over, or a host function refusing how it
//! is used. A change of the words makes the ending `internal`, never the connector's fault or a wrong
//! limit, and fails the test of the component in `tests/hostile` that is named beside it.

use super::traps::Ending;
use crate::failure::{LimitHit, LimitKind, RuntimeFault};
use crate::limits;

/// What a guest does that is no way to use a host function or a handle; `details.trap`.
pub(super) const HANDLE_MISUSE: &str = "handle_misuse";
pub(super) const HOST_CALL_MISUSE: &str = "host_call_misuse";

/// What the words mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Limit(LimitKind, u64),
    Trap(&'static str),
    Malformed(&'static str),
}

use Meaning::{Limit, Malformed, Trap};

const POINTER: Meaning = Malformed("a pointer outside its memory");
const UNALIGNED: Meaning = Malformed("an unaligned pointer");
const STRING: Meaning = Malformed("a string outside its memory");
const LIST: Meaning = Malformed("a list outside its memory");
const CASE: Meaning = Malformed("an unknown case of a variant");
const ENCODING: Meaning = Malformed("text that is not in its encoding");
const TOO_LONG: Meaning = Malformed("a value larger than a memory can be");
const NO_ROOM: Meaning = Malformed("no room for a value it is given");

/// How the words begin, and what they mean. First fits first.
const WORDS: &[(&str, Meaning)] = &[
    // logs-megabytes, huge-text
    ("too much data is being copied", Limit(LimitKind::HostTransfer, limits::HOST_TRANSFER_BYTES as u64)),
    // makes-resources, lends-what-it-hoards
    ("cannot allocate another handle", Limit(LimitKind::Handles, limits::HANDLES as u64)),
    ("cannot lend resource: store handle limit", Limit(LimitKind::Handles, limits::HANDLES as u64)),
    ("cannot lend resource", Trap(HANDLE_MISUSE)),
    // many-adapters: instances that wasmtime puts between composed components; the others are counted
    // before anything is instantiated.
    ("resource limit exceeded: instance count", Limit(LimitKind::Instances, limits::INSTANCES as u64)),
    // result-outside, result-unaligned, text-outside, list-outside, list-unaligned
    ("return pointer not aligned", UNALIGNED),
    ("pointer not aligned", UNALIGNED),
    ("string pointer not aligned", UNALIGNED),
    ("list pointer is not aligned", UNALIGNED),
    ("pointer out of bounds", POINTER),
    ("pointer size overflow", POINTER),
    ("string pointer/length out of bounds", STRING),
    ("list pointer/length out of bounds", LIST),
    // unknown-case, unknown-failure, unknown-level
    ("discriminant ", CASE),
    ("unexpected discriminant", CASE),
    ("invalid option discriminant", CASE),
    ("invalid expected discriminant", CASE),
    // passes-text-not-utf8, passes-text-not-utf16
    ("invalid utf8 encoding", ENCODING),
    ("invalid utf16 encoding", ENCODING),
    // allocates-outside, allocates-unaligned
    ("realloc return: ", NO_ROOM),
    ("size overflow copying", TOO_LONG),
    ("byte length ", TOO_LONG),
    // unknown-handle, handle-of-another-type, drops-what-it-lends, keeps-a-borrow
    ("unknown handle index", Trap(HANDLE_MISUSE)),
    ("index ", Trap(HANDLE_MISUSE)),
    ("handle index ", Trap(HANDLE_MISUSE)),
    ("cannot remove owned resource while borrowed", Trap(HANDLE_MISUSE)),
    ("cannot lift own resource from a borrow", Trap(HANDLE_MISUSE)),
    ("borrow handles still remain", Trap(HANDLE_MISUSE)),
    ("host-owned resource was already de-allocated", Trap(HANDLE_MISUSE)),
    // polls-nothing, writes-too-much-at-once
    ("empty poll list", Trap(HOST_CALL_MISUSE)),
    ("Buffer too large for blocking-write", Trap(HOST_CALL_MISUSE)),
    ("cannot write more zeroes", Trap(HOST_CALL_MISUSE)),
    ("write exceeded budget", Trap(HOST_CALL_MISUSE)),
    ("max blocking attempts exceeded", Trap(HOST_CALL_MISUSE)),
];

/// What the words of an error mean, if they are known.
pub(super) fn ending(words: &str) -> Option<Ending> {
    let (_, meaning) = WORDS.iter().find(|(begin, _)| words.starts_with(begin))?;
    Some(match *meaning {
        Limit(limit, configured) => Ending::Limit(LimitHit::at_least_one_over(limit, configured)),
        Trap(word) => Ending::Fault(RuntimeFault::Trap(word)),
        Malformed(what) => Ending::Fault(RuntimeFault::OutputMalformed(what)),
    })
}
