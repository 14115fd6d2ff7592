//! The endings for which wasmtime 48 has words and no type: the only place that reads an error's text.
//!
//! Each is one of three things: a budget of wasmtime's that is used up (it says so in words alone), the
//! canonical ABI refusing a value or a handle that a guest hands over, or a host function refusing how it
//! is used. A change of the words makes the ending `internal`, never the connector's fault or a wrong
//! limit, and fails the test of the component in `tests/hostile` that causes them.

use cofferdam_core::failure::{LimitHit, LimitKind, RuntimeFault};
use cofferdam_core::limits;

use super::traps::Ending;

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
const NO_ROOM: Meaning = Malformed("no room for a value it is given");

/// How the words begin, what they mean, and the component in `tests/hostile` that causes them. First fits
/// first.
const WORDS: &[(&str, Meaning, &str)] = &[
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
    // Those that wasmtime puts between composed components; the others are counted before anything is
    // instantiated.
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
    ("unknown handle index", Trap(HANDLE_MISUSE), "unknown-handle"),
    ("handle index ", Trap(HANDLE_MISUSE), "handle-of-another-type"),
    ("borrow handles still remain", Trap(HANDLE_MISUSE), "keeps-a-borrow"),
    ("cannot lift own resource from a borrow", Trap(HANDLE_MISUSE), "gives-away-a-borrow"),
    ("empty poll list", Trap(HOST_CALL_MISUSE), "polls-nothing"),
    ("Buffer too large for blocking-write", Trap(HOST_CALL_MISUSE), "writes-too-much-at-once"),
    ("cannot write more zeroes", Trap(HOST_CALL_MISUSE), "writes-too-many-zeroes"),
    ("write exceeded budget", Trap(HOST_CALL_MISUSE), "writes-over-budget"),
];

/// What the words of an error mean, if they are known.
pub(super) fn ending(words: &str) -> Option<Ending> {
    let (_, meaning, _) = WORDS.iter().find(|(begin, ..)| words.starts_with(begin))?;
    Some(match *meaning {
        Limit(limit, configured) => Ending::Limit(LimitHit::at_least_one_over(limit, configured)),
        Trap(word) => Ending::Fault(RuntimeFault::Trap(word)),
        Malformed(what) => Ending::Fault(RuntimeFault::OutputMalformed(what)),
    })
}

#[cfg(test)]
mod tests {
    use cofferdam_test_support::package::hostile_text;

    use super::*;

    #[test]
    fn every_row_has_a_component_that_ends_with_these_words() {
        for (begin, meaning, name) in WORDS {
            let text = hostile_text(name);
            let mut head = text.lines().skip(1);
            let (expects, words) = (head.next().unwrap_or_default(), head.next().unwrap_or_default());
            assert_eq!(words, format!(";; words: {}", begin.trim_end()), "{name}");
            let code = match meaning {
                Limit(kind, _) => kind.name(),
                Trap(word) => word,
                Malformed(_) => "output_malformed",
            };
            assert!(expects.ends_with(code), "{name}: {expects}");
        }
    }
}
