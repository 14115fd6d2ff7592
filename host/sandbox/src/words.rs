//! The endings for which wasmtime 48 has text and no type: the only code that reads an error's text.
//!
//! Each is one of three things: a budget of wasmtime's that is used up (reported only as text), the canonical
//! ABI refusing a value or a handle of the guest, or a host function refusing its use. If the text changes,
//! the ending becomes `internal`, never the connector's fault or a wrong limit, and the test of the component
//! in `tests/hostile` that causes it fails.

use cofferdam_core::failure::{LimitHit, LimitKind, RuntimeFault};
use cofferdam_core::limits;

use super::traps::CallEnding;

/// The misuse of a host function or a handle by a guest; `details.trap`.
pub(super) const HANDLE_MISUSE: &str = "handle_misuse";
pub(super) const HOST_CALL_MISUSE: &str = "host_call_misuse";

/// The meaning of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextMeaning {
    Limit(LimitKind, u64),
    Trap(&'static str),
    Malformed(&'static str),
}

use TextMeaning::{Limit, Malformed, Trap};

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
    ("unknown handle index", Trap(HANDLE_MISUSE), "unknown-handle"),
    ("handle index ", Trap(HANDLE_MISUSE), "handle-of-another-type"),
    ("borrow handles still remain", Trap(HANDLE_MISUSE), "keeps-a-borrow"),
    ("cannot lift own resource from a borrow", Trap(HANDLE_MISUSE), "gives-away-a-borrow"),
    ("empty poll list", Trap(HOST_CALL_MISUSE), "polls-nothing"),
    ("Buffer too large for blocking-write", Trap(HOST_CALL_MISUSE), "writes-too-much-at-once"),
    ("cannot write more zeroes", Trap(HOST_CALL_MISUSE), "writes-too-many-zeroes"),
    ("write exceeded budget", Trap(HOST_CALL_MISUSE), "writes-over-budget"),
];

/// Returns the meaning of an error's text, if it is known.
pub(super) fn ending(words: &str) -> Option<CallEnding> {
    let (_, meaning, _) = WORDS.iter().find(|(begin, ..)| words.starts_with(begin))?;
    Some(match *meaning {
        Limit(limit, configured) => CallEnding::Limit(LimitHit::at_least_one_over(limit, configured)),
        Trap(word) => CallEnding::Fault(RuntimeFault::Trap(word)),
        Malformed(what) => CallEnding::Fault(RuntimeFault::OutputMalformed(what)),
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
