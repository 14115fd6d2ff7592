//! The name of a new connector, which is also the name of its crate, of its WIT package and of its interface.

use cofferdam_core::document::quoted;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::manifest::ConnectorName;

/// Longest name, in bytes: it becomes a part of file names.
const MAX_BYTES: usize = 50;

/// The scheme of a connector that was named without one.
const SCHEME: &str = "github";

/// Names that mean something else in one of the languages, in WIT, in the contract or in the templates.
const RESERVED: &[&str] = &[
    // Rust, and crates that cannot have another's name.
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "do",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "serde",
    "serde-json",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "union",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
    "none",
    "ok",
    "option",
    "result",
    "some",
    "string",
    "vec",
    // WIT.
    "borrow",
    "bool",
    "char",
    "constructor",
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
    "own",
    "package",
    "record",
    "resource",
    "s16",
    "s32",
    "s64",
    "s8",
    "static",
    "stream",
    "tuple",
    "u16",
    "u32",
    "u64",
    "u8",
    "variant",
    "with",
    "world",
    // Python and JavaScript.
    "and",
    "assert",
    "case",
    "catch",
    "class",
    "debugger",
    "def",
    "default",
    "del",
    "delete",
    "elif",
    "except",
    "exports",
    "finally",
    "function",
    "global",
    "instanceof",
    "is",
    "lambda",
    "new",
    "nonlocal",
    "not",
    "null",
    "or",
    "pass",
    "raise",
    "switch",
    "this",
    "throw",
    "typing",
    "var",
    "void",
    // The contract and the templates.
    "app",
    "call",
    "cofferdam",
    "cofferdam-guest",
    "connector",
    "credential",
    "err",
    "failure",
    "guest",
    "item",
    "log",
    "types",
];

/// A name that was given: with its owner or without.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GivenName {
    Full(ConnectorName),
    Bare(String),
}

impl GivenName {
    /// Reads `weather` or `github://acme/weather`.
    ///
    /// # Errors
    /// No crate, WIT package or file can have that name; the error suggests one.
    pub(super) fn parse(text: &str) -> Result<Self, HostError> {
        if !text.contains("://") {
            check(text)?;
            return Ok(Self::Bare(text.to_owned()));
        }
        let name = ConnectorName::unversioned(text).map_err(|refused| {
            HostError::new(HostErrorKind::Validation, format!("{}.", refused.message()))
                .with_hint(format!("{}.", crate::files::capitalised(refused.fix())))
        })?;
        check(short(&name))?;
        Ok(Self::Full(name))
    }
}

/// Returns the name that the connector `name` of `owner` has.
///
/// # Errors
/// The owner cannot be a part of a name.
pub(super) fn owned_by(owner: &str, name: &str) -> Result<ConnectorName, HostError> {
    // `gitlab://acme` is an owner, too.
    let text =
        if owner.contains("://") { format!("{owner}/{name}") } else { format!("{SCHEME}://{owner}/{name}") };
    ConnectorName::parse(&text).map_err(|refused| {
        HostError::new(
            HostErrorKind::Validation,
            format!("{} cannot be the owner: {}.", quoted(owner), refused.message()),
        )
        .with_hint("Name the account that publishes it, in lower case: --owner acme.")
    })
}

/// Returns the last part of a connector's name.
pub(super) fn short(name: &ConnectorName) -> &str {
    name.as_str().rsplit('/').next().unwrap_or_default()
}

/// Returns the nearest text that is an owner; none if nothing is left of it.
pub(super) fn as_owner(text: &str) -> Option<String> {
    let lower = text.trim().to_lowercase();
    let kept: String = lower.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
    let kept = kept.trim_start_matches(['.', '_', '-']).to_owned();
    owned_by(&kept, "x").is_ok().then_some(kept)
}

fn check(text: &str) -> Result<(), HostError> {
    let Some(reason) = problem(text) else { return Ok(()) };
    let message = format!("{} cannot be the name of a connector: {reason}.", quoted(text));
    let hint = match kebab(text) {
        Some(name) => format!("Try `cofferdam new {name}`."),
        None => {
            "Write lower-case letters, digits and single hyphens, as in `weather` or `issue-tracker`.".into()
        }
    };
    Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint))
}

/// Returns the reason why `text` is no name.
fn problem(text: &str) -> Option<&'static str> {
    let word = |word: &str| {
        let mut bytes = word.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_lowercase())
            && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    match text {
        "" => Some("it is empty"),
        _ if text.len() > MAX_BYTES => Some("it has more than 50 characters"),
        _ if !text.split('-').all(word) => Some(
            "each of its words begins with a lower-case letter and has letters and digits, with a hyphen between two",
        ),
        _ if RESERVED.contains(&text) => Some("the word is taken by a language or by cofferdam"),
        _ => None,
    }
}

/// Returns the nearest text in words with hyphens; none if there is none. It is a name, too.
pub(super) fn kebab(text: &str) -> Option<String> {
    let mut spaced = String::new();
    let mut previous = ' ';
    for c in text.trim().chars() {
        if c.is_ascii_uppercase() && previous.is_ascii_lowercase() {
            spaced.push('-');
        }
        spaced.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
        previous = c;
    }
    let words = spaced.split('-').map(|word| word.trim_start_matches(|c: char| c.is_ascii_digit()));
    let mut name = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    name.truncate(MAX_BYTES);
    let mut name = name.trim_end_matches('-').to_owned();
    if RESERVED.contains(&name.as_str()) {
        name.push_str("-service");
    }
    problem(&name).is_none().then_some(name)
}

/// Returns `issue-tracker` as `IssueTracker`.
pub(super) fn upper_camel(name: &str) -> String {
    name.split('-').map(crate::files::capitalised).collect()
}

/// Returns `issue-tracker` as `issueTracker`.
pub(super) fn lower_camel(name: &str) -> String {
    let mut words = name.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    first + &words.map(crate::files::capitalised).collect::<String>()
}

/// Returns `issue-tracker` as `issue_tracker`.
pub(super) fn snake(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn names_with_and_without_owner_are_read() {
        assert_eq!(GivenName::parse("issue-tracker2").unwrap(), GivenName::Bare("issue-tracker2".into()));
        let GivenName::Full(name) = GivenName::parse("gitlab://acme/tools/weather").unwrap() else {
            unreachable!()
        };
        assert_eq!((name.owner(), short(&name)), ("acme", "weather"));
        assert_eq!(owned_by("acme", "weather").unwrap().as_str(), "github://acme/weather");
        assert_eq!(owned_by("local://me", "weather").unwrap().as_str(), "local://me/weather");
        let error = owned_by("Acme Inc", "weather").unwrap_err();
        assert!(error.hint().unwrap().contains("--owner"), "{error}");
    }

    #[test]
    fn a_bad_name_is_refused_with_a_suggestion() {
        let long = "a".repeat(60);
        for (text, suggestion) in [
            ("Weather", "new weather`"),
            ("IssueTracker", "new issue-tracker`"),
            ("my weather app", "new my-weather-app`"),
            ("issue_tracker", "new issue-tracker`"),
            ("weather--x", "new weather-x`"),
            ("-weather", "new weather`"),
            ("2weather", "new weather`"),
            ("weather-2", "new weather`"),
            ("../weather", "new weather`"),
            ("weather.app", "new weather-app`"),
            ("wéather", "new w-ather`"),
            ("type", "new type-service`"),
            ("failure", "new failure-service`"),
            ("test", "new test-service`"),
            (&long, &format!("new {}`", "a".repeat(50))),
            ("", "as in `weather`"),
            ("天気", "as in `weather`"),
            ("7", "as in `weather`"),
            ("github://acme/Weather", "github://acme/weather"),
            ("github://acme/weather@1.0.0", "github://acme/weather"),
            ("github://acme/my_tool", "new my-tool`"),
        ] {
            let error = GivenName::parse(text).unwrap_err();
            assert!(error.hint().unwrap().contains(suggestion), "{text}: {error} {:?}", error.hint());
            assert!(!error.message().contains('\n'));
        }
        for word in RESERVED {
            let other = kebab(word).unwrap();
            assert!(problem(word).is_some() && problem(&other).is_none(), "{word} {other}");
        }
    }

    #[test]
    fn an_owner_is_derived_from_a_user_name() {
        for (user, owner) in [
            ("ada", Some("ada")),
            ("Ada Lovelace", Some("adalovelace")),
            ("_svc", Some("svc")),
            ("天", None),
            ("", None),
        ] {
            assert_eq!(as_owner(user).as_deref(), owner, "{user}");
        }
    }

    #[test]
    fn names_are_written_as_each_language_writes_them() {
        let name = "issue-tracker2";
        assert_eq!(upper_camel(name), "IssueTracker2");
        assert_eq!(lower_camel(name), "issueTracker2");
        assert_eq!(snake(name), "issue_tracker2");
    }
}
