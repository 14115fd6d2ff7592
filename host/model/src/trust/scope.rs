//! The scope of a key: all connectors of one owner, or one connector.

use std::fmt;

use cofferdam_core::document::{InvalidValue, quoted};

use crate::manifest::{ConnectorName, check_owner};

/// The connectors a key may sign: `github://acme/*` or exactly `github://acme/slack`.
///
/// There is no way to write "everything", nor a prefix that ends inside a segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SigningScope(ScopeKind);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ScopeKind {
    Owner { scheme: String, owner: String },
    Connector(ConnectorName),
}

impl SigningScope {
    /// Reads a scope.
    ///
    /// # Errors
    /// Anything but `<scheme>://<owner>/*` and a connector name.
    pub fn parse(text: &str) -> Result<Self, InvalidValue> {
        if !text.contains('*') {
            return ConnectorName::parse(text).map(|name| Self(ScopeKind::Connector(name)));
        }
        let parts = text.strip_suffix("/*").and_then(|rest| rest.split_once("://"));
        match parts.map(|(scheme, owner)| (scheme, owner, check_owner(scheme, owner))) {
            Some((scheme, owner, Ok(()))) => {
                Ok(Self(ScopeKind::Owner { scheme: scheme.to_owned(), owner: owner.to_owned() }))
            }
            other => {
                let reason = match other {
                    Some((_, _, Err(reason))) => reason,
                    _ => "`*` stands only for all of one owner".to_owned(),
                };
                let message = format!("{} is not a scope: {reason}", quoted(text));
                Err(InvalidValue::new(message, "write github://acme/* or a connector's whole name"))
            }
        }
    }

    /// The scope of everything that `name`'s owner has.
    #[must_use]
    pub fn for_owner(name: &ConnectorName) -> Self {
        Self(ScopeKind::Owner { scheme: name.scheme().to_owned(), owner: name.owner().to_owned() })
    }

    /// Returns true if everything in `other` is in this scope too.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        match &other.0 {
            ScopeKind::Owner { .. } => self == other,
            ScopeKind::Connector(name) => self.covers(name),
        }
    }

    /// Returns true if it is all of one owner.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        matches!(self.0, ScopeKind::Owner { .. })
    }

    /// Returns true if `name` is in the scope.
    #[must_use]
    pub fn covers(&self, name: &ConnectorName) -> bool {
        match &self.0 {
            ScopeKind::Owner { scheme, owner } => name.scheme() == scheme && name.owner() == owner,
            ScopeKind::Connector(only) => only == name,
        }
    }
}

impl fmt::Display for SigningScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ScopeKind::Owner { scheme, owner } => write!(f, "{scheme}://{owner}/*"),
            ScopeKind::Connector(name) => name.fmt(f),
        }
    }
}

impl serde::Serialize for SigningScope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::SigningScope;
    use crate::manifest::ConnectorName;

    #[test]
    fn a_scope_is_one_owner_or_one_connector() {
        let name = |text| ConnectorName::parse(text).unwrap();
        let owner = SigningScope::parse("github://acme/*").unwrap();
        let one = SigningScope::parse("github://acme/slack").unwrap();
        assert_eq!(SigningScope::for_owner(&name("github://acme/x/y")), owner);
        for (text, by_owner, by_one) in [
            ("github://acme/slack", true, true),
            ("github://acme/slack/sub", true, false),
            ("github://acme/slack2", true, false),
            ("github://acme2/slack", false, false),
            ("github://acm/slack", false, false),
            ("gitlab://acme/slack", false, false),
        ] {
            assert_eq!((owner.covers(&name(text)), one.covers(&name(text))), (by_owner, by_one), "{text}");
        }
        for text in [&owner, &one] {
            assert_eq!(&SigningScope::parse(&text.to_string()).unwrap(), text);
        }
    }

    #[test]
    fn wider_scopes_are_refused() {
        for text in [
            "",
            "*",
            "*/*",
            "github://*",
            "github://*/*",
            "github://acme/s*",
            "github://acme/slack/*",
            "github://acme",
            "github://acme*/x",
            "*://acme/*",
            "github:///*",
            "github://Acme/*",
            "ftp://acme/*",
            "github://a/../*",
        ] {
            assert!(SigningScope::parse(text).is_err(), "{text}");
        }
    }
}
