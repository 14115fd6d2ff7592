//! Names in WIT and Rust, made from those of a document: the same name each time.

use std::collections::HashSet;

/// The longest name, in bytes.
const MAX_BYTES: usize = 64;

/// Words that WIT reads as its own, unless they are escaped with `%`.
const WIT_KEYWORDS: &[&str] = &[
    "as",
    "async",
    "bool",
    "borrow",
    "char",
    "constructor",
    "enum",
    "error-context",
    "export",
    "f32",
    "f64",
    "flags",
    "from",
    "func",
    "future",
    "import",
    "include",
    "interface",
    "list",
    "map",
    "option",
    "own",
    "package",
    "record",
    "resource",
    "result",
    "s16",
    "s32",
    "s64",
    "s8",
    "static",
    "stream",
    "string",
    "tuple",
    "type",
    "u16",
    "u32",
    "u64",
    "u8",
    "use",
    "variant",
    "with",
    "world",
];

/// Words that Rust reads as its own; the bindings write an underscore behind them.
const RUST_KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "if", "impl", "in", "let", "loop", "macro",
    "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct",
    "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where",
    "while", "yield",
];

/// Names of types that would hide those of Rust, of the SDK or of the bindings.
pub(crate) const RESERVED_TYPES: &[&str] = &[
    "box",
    "clone",
    "connector",
    "copy",
    "debug",
    "default",
    "drop",
    "err",
    "failure",
    "fn",
    "from",
    "guest",
    "into",
    "none",
    "ok",
    "option",
    "ord",
    "partial-eq",
    "result",
    "self",
    "send",
    "sized",
    "some",
    "string",
    "sync",
    "vec",
];

/// Returns the kebab-case form of a text in any script; empty if nothing of it can be part of a name.
pub(crate) fn kebab(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for character in text.chars().take(4 * MAX_BYTES) {
        match character {
            character if character.is_ascii() => ascii.push(character),
            // Every character of a script without spaces is a word of its own.
            character => {
                let latin = any_ascii::any_ascii_char(character);
                let is_word = latin.len() > 1 && !character.is_lowercase() && !character.is_uppercase();
                if is_word {
                    ascii.push(' ');
                }
                ascii.push_str(latin);
                if is_word {
                    ascii.push(' ');
                }
            }
        }
    }
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let characters: Vec<char> = ascii.chars().collect();
    for (at, character) in characters.iter().enumerate() {
        let next = characters.get(at + 1);
        let last = word.chars().last();
        if !character.is_ascii_alphanumeric() {
            words.push(std::mem::take(&mut word));
            continue;
        }
        let begins = character.is_ascii_uppercase()
            && (last.is_some_and(|last| last.is_ascii_lowercase() || last.is_ascii_digit())
                || next.is_some_and(char::is_ascii_lowercase)
                    && last.is_some_and(|last| last.is_ascii_uppercase()));
        if begins {
            words.push(std::mem::take(&mut word));
        }
        word.push(*character);
    }
    words.push(word);
    let words = words.iter().filter(|word| !word.is_empty()).map(|word| word.to_ascii_lowercase());
    let mut name = words.collect::<Vec<_>>().join("-");
    // Signs that make a difference: GitHub has the reactions `+1` and `-1`.
    let sign = match text.bytes().next() {
        Some(b'+') => "plus",
        Some(b'-') => "minus",
        Some(b'<') => "less",
        Some(b'>') => "greater",
        Some(b'=') => "equal",
        Some(b'!') => "not",
        Some(b'*') => "star",
        _ => "",
    };
    if !sign.is_empty()
        && (name.is_empty()
            || name.starts_with(|first: char| first.is_ascii_digit())
            || matches!(sign, "not" | "minus" | "plus"))
    {
        name = if name.is_empty() { sign.to_owned() } else { format!("{sign}-{name}") };
    }
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        name.insert(0, 'n');
    }
    shorten(name)
}

/// Joins names, and shortens the result.
pub(crate) fn join(first: &str, second: &str) -> String {
    match (first, second) {
        ("", name) | (name, "") => shorten(name.to_owned()),
        (first, second) => shorten(format!("{first}-{second}")),
    }
}

/// Cuts a long name, and adds a digest of the whole, so that two long names stay different.
fn shorten(name: String) -> String {
    if name.len() <= MAX_BYTES {
        return name;
    }
    let digest = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let start = name.get(..MAX_BYTES - 8).unwrap_or_default().trim_end_matches('-');
    format!("{start}-x{:06x}", digest & 0x00ff_ffff)
}

/// The names of one namespace.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespace {
    taken: HashSet<String>,
}

impl Namespace {
    /// Takes a name, or the first that is free of `name-2`, `name-3` and so on.
    pub(crate) fn claim(&mut self, wanted: &str, otherwise: &str) -> String {
        let wanted = if wanted.is_empty() { otherwise } else { wanted };
        // Names that differ in dashes alone are one name in Rust's types.
        let key = |name: &str| name.replace('-', "");
        let mut name = wanted.to_owned();
        let mut number = 1_u32;
        while !self.taken.insert(key(&name)) {
            number += 1;
            name = format!("{wanted}-{number}");
        }
        name
    }

    /// Takes a name for a type: names that mean something in Rust or the SDK get another.
    pub(crate) fn claim_type(&mut self, wanted: &str) -> String {
        if RESERVED_TYPES.contains(&wanted) {
            self.claim(&format!("api-{wanted}"), "")
        } else {
            self.claim(wanted, "item")
        }
    }
}

/// Returns a name as WIT writes it.
pub(crate) fn wit(name: &str) -> String {
    if WIT_KEYWORDS.contains(&name) { format!("%{name}") } else { name.to_owned() }
}

/// Returns the name of a field, parameter or function in the bindings.
pub(crate) fn rust(name: &str) -> String {
    if RUST_KEYWORDS.contains(&name) { format!("{name}_") } else { name.replace('-', "_") }
}

/// Returns the name as callers write it in JSON.
pub(crate) fn json(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the name of a type or case in the bindings.
pub(crate) fn camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    for word in name.split('-') {
        let mut characters = word.chars();
        if let Some(first) = characters.next() {
            camel.push(first.to_ascii_uppercase());
            camel.push_str(characters.as_str());
        }
    }
    camel
}

/// Returns the name of a flag in the bindings.
pub(crate) fn constant(name: &str) -> String {
    name.replace('-', "_").to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_kebab_case() {
        for (text, expected) in [
            ("issues/list-for-repo", "issues-list-for-repo"),
            ("getHTTPResponse2xx", "get-http-response2xx"),
            ("GetAccount", "get-account"),
            ("snake_case.dotted", "snake-case-dotted"),
            ("+1", "plus-1"),
            ("-1", "minus-1"),
            ("2fa", "n2fa"),
            ("größe", "grosse"),
            ("年月", "nian-yue"),
            ("-created", "minus-created"),
            ("!=", "not"),
            ("  ", ""),
            ("💥", "boom"),
            ("a--b", "a-b"),
            ("IDs", "i-ds"),
        ] {
            assert_eq!(kebab(text), expected, "{text}");
        }
        let long = kebab(&"long ".repeat(40));
        assert!(long.len() <= MAX_BYTES && long != kebab(&"long ".repeat(41)), "{long}");
    }

    #[test]
    fn clashes_are_numbered() {
        let mut names = Namespace::default();
        let claimed = ["a-2", "a2", "a", "a", "", ""].map(|name| names.claim(name, "value"));
        assert_eq!(claimed, ["a-2", "a2-2", "a", "a-3", "value", "value-2"]);
        assert_eq!(names.claim_type("option"), "api-option");
    }
}
