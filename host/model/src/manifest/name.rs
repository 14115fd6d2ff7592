//! A connector's name: `<scheme>://<owner>/<repo>[/<subpath>...]`, an identity and not an address.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cofferdam_core::document::{InvalidValue, quoted_ascii};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The schemes a name may have. A name is never used to fetch anything.
const SCHEMES: [&str; 4] = ["github", "gitlab", "hub", "local"];

/// Longest name, in bytes.
const MAX_BYTES: usize = 200;

const FORM: &str = "write it like github://acme/slack (lower-case ASCII)";

/// A connector's name.
///
/// Lower-case ASCII throughout, so that two names are the same exactly when they look the same; at
/// most 200 bytes; every segment starts with a letter or digit and goes on with those, `.`, `_`, `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectorName(Arc<str>);

impl ConnectorName {
    /// Reads a name.
    ///
    /// # Errors
    /// Anything outside the grammar, with the nearest spelling inside it where there is one.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        match check(text) {
            Ok(()) => Ok(Self(text.into())),
            Err(reason) => {
                let message = format!("{} is not a connector name: {reason}", quoted_ascii(text));
                let fix = match respelled(text) {
                    Some(name) => format!("write it as {name}"),
                    None => FORM.to_owned(),
                };
                Err(InvalidValue::new(message, fix))
            }
        }
    }

    /// Reads a name without a version.
    ///
    /// # Errors
    /// A name with a version, or anything outside the grammar.
    pub fn unversioned(text: &str) -> Result<Self, InvalidValue> {
        match text.split_once('@') {
            Some((bare, _)) if Self::parse(bare).is_ok() => {
                let message = format!("{} names a version", quoted_ascii(text));
                Err(InvalidValue::new(message, format!("write \"{bare}\": it holds for every version")))
            }
            _ => Self::parse(text),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as text that others may keep.
    pub fn text(&self) -> &Arc<str> {
        &self.0
    }

    /// The scheme: `github`, `gitlab`, `hub` or `local`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// The owner: the first segment, to which signing keys are scoped.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.0.split('/').nth(2).unwrap_or_default()
    }
}

impl Serialize for ConnectorName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Checks `<scheme>` and `<owner>` as written in names and key scopes.
pub(crate) fn check_owner(scheme: &str, owner: &str) -> Result<(), String> {
    if !SCHEMES.contains(&scheme) {
        return Err(format!("its scheme is not one of {}", SCHEMES.join(", ")));
    }
    check_segment(owner)
}

fn check(text: &str) -> Result<(), String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    let Some((scheme, path)) = text.split_once("://") else {
        return Err("it has no scheme".into());
    };
    let mut segments = path.split('/');
    check_owner(scheme, segments.next().unwrap_or_default())?;
    let mut repository = false;
    for segment in segments {
        repository = true;
        check_segment(segment)?;
    }
    if repository { Ok(()) } else { Err("it has an owner but no repository".into()) }
}

fn check_segment(segment: &str) -> Result<(), String> {
    let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    match segment.as_bytes() {
        [] => Err("it has an empty segment".into()),
        [first, ..] if !ok(*first) => Err(format!("the segment {} starts wrongly", quoted_ascii(segment))),
        bytes if !bytes.iter().all(|b| ok(*b) || b"._-".contains(b)) => {
            Err(format!("the segment {} has a character that is not allowed", quoted_ascii(segment)))
        }
        _ if segment.contains("..") => Err(format!("the segment {} has `..`", quoted_ascii(segment))),
        _ => Ok(()),
    }
}

/// The name that was probably meant: lower case, and without the web address around it.
fn respelled(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    let bare = lower.strip_prefix("https://").unwrap_or(&lower);
    let bare = bare.trim_end_matches('/').trim_end_matches(".git");
    let name = match bare.split_once(".com/") {
        Some((scheme @ ("github" | "gitlab"), path)) => format!("{scheme}://{path}"),
        _ => bare.to_owned(),
    };
    check(&name).is_ok().then_some(name)
}

impl fmt::Display for ConnectorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ConnectorName {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::parse(text)
    }
}

impl<'de> Deserialize<'de> for ConnectorName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::ConnectorName;

    #[test]
    fn valid_names_round_trip() {
        for text in [
            "github://acme/slack",
            "gitlab://a/b",
            "hub://9/0-_.x",
            "local://me/tools/a/b/c",
            "github://a/x.y",
        ] {
            let name = ConnectorName::parse(text).unwrap();
            assert_eq!(name.to_string(), text);
            let json = serde_json::to_string(&name).unwrap();
            assert_eq!(serde_json::from_str::<ConnectorName>(&json).unwrap(), name);
        }
        let name = ConnectorName::parse("github://acme/slack/sub").unwrap();
        assert_eq!((name.scheme(), name.owner()), ("github", "acme"));
    }

    #[test]
    fn invalid_names_are_refused_with_a_fix() {
        let long = format!("github://acme/{}", "a".repeat(200));
        for (text, fix) in [
            ("", "lower-case ASCII"),
            ("acme/slack", "github://acme/slack"),
            ("GitHub://Acme/Slack", "write it as github://acme/slack"),
            ("https://github.com/Acme/Slack", "write it as github://acme/slack"),
            ("github.com/acme/slack.git", "write it as github://acme/slack"),
            ("github://acme", "lower-case ASCII"),
            ("github://acme/", "lower-case ASCII"),
            ("github:///slack", "lower-case ASCII"),
            ("github://acme//slack", "lower-case ASCII"),
            ("github://acme/../etc", "lower-case ASCII"),
            ("github://acme/a..b", "lower-case ASCII"),
            ("github://acme/%2e%2e", "lower-case ASCII"),
            ("github://acme/a\\b", "lower-case ASCII"),
            ("github://acme/a\0b", "lower-case ASCII"),
            ("github://acme/.hidden", "lower-case ASCII"),
            ("github://аcme/slack", "lower-case ASCII"),
            ("github://acme/slack@1.0.0", "lower-case ASCII"),
            ("ftp://acme/slack", "lower-case ASCII"),
            ("github://acme/slack\n", "write it as github://acme/slack"),
            (&long, "lower-case ASCII"),
        ] {
            let error = ConnectorName::parse(text).unwrap_err();
            assert!(error.fix().contains(fix), "{text:?}: {error}");
            assert!(!error.to_string().contains(['\n', '\0']), "{text:?}");
        }
        let error = ConnectorName::parse("ftp://acme/slack").unwrap_err();
        assert!(error.message().contains("github, gitlab, hub, local"), "{error}");
    }
}
