//! The subset of one connector's operations and hosts that an action may use, checked when it is made.

use std::collections::BTreeMap;

use cofferdam_core::document::{InvalidValue, quoted};
use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode, GrantLine};
use cofferdam_core::limits::LimitRequest;
use semver::Version;

use crate::manifest::{HostGrant, UrlScheme};

/// Longest name of an action or an operation, in bytes.
const NAME_BYTES: usize = 100;

/// The part of one connector that an action declares; given with a call by `Call::within`.
///
/// Nothing is in it that was not put there: an action that names no hosts reaches none, though the
/// connector be granted some. It can only narrow: one that declares more than the connector has is
/// refused before anything runs.
///
/// ```
/// use cofferdam_model::action::ActionScope;
///
/// let scope = ActionScope::new("notify@1.0.0", ["post_message"], ["slack.com:443"])?;
/// assert!(ActionScope::new("notify", ["post_message"], ["slack.com:443"]).is_err(), "which version?");
/// # Ok::<(), cofferdam_model::action::InvalidValue>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionScope {
    action: String,
    operations: Vec<String>,
    hosts: Vec<HostGrant>,
    limits: LimitRequest,
    identities: BTreeMap<String, String>,
}

impl ActionScope {
    /// The scope of `action` (`name@version`): these operations, under their callers' names, and these
    /// hosts, as a manifest writes them.
    ///
    /// # Errors
    /// A name, an operation or a host outside its grammar, with how to write it.
    pub fn new<O: AsRef<str>, H: AsRef<str>>(
        action: &str,
        operations: impl IntoIterator<Item = O>,
        hosts: impl IntoIterator<Item = H>,
    ) -> Result<Self, InvalidValue> {
        check_action(action)?;
        let mut scope = Self {
            action: action.to_owned(),
            operations: Vec::new(),
            hosts: Vec::new(),
            limits: LimitRequest::default(),
            identities: BTreeMap::new(),
        };
        for operation in operations {
            let operation = operation.as_ref();
            check_operation(operation)?;
            if !scope.includes(operation) {
                scope.operations.push(operation.to_owned());
            }
        }
        for host in hosts {
            let host = HostGrant::parse(host.as_ref())?;
            if !scope.hosts.contains(&host) {
                scope.hosts.push(host);
            }
        }
        Ok(scope)
    }

    /// Sets requested limits: they outrank the manifest's, and the caller's own outrank them.
    #[must_use]
    pub fn with_limits(mut self, limits: LimitRequest) -> Self {
        self.limits = limits;
        self
    }

    /// Uses the credential that is bound as `<kind>/<service>/<identity>`, unless the caller chooses another.
    #[must_use]
    pub fn with_identity(mut self, service: impl Into<String>, identity: impl Into<String>) -> Self {
        self.identities.insert(service.into(), identity.into());
        self
    }

    /// The identities that it uses, by service.
    #[must_use]
    pub fn identities(&self) -> &BTreeMap<String, String> {
        &self.identities
    }

    /// The action, as `name@version`.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.action
    }

    /// The operations it may call.
    #[must_use]
    pub fn operations(&self) -> &[String] {
        &self.operations
    }

    /// The hosts it may have the connector reach.
    #[must_use]
    pub fn hosts(&self) -> &[HostGrant] {
        &self.hosts
    }

    /// Returns the requested limits.
    #[must_use]
    pub fn limits(&self) -> &LimitRequest {
        &self.limits
    }

    /// The line of the action's file that declares this.
    #[must_use]
    pub fn line(&self) -> GrantLine {
        GrantLine::action(self.file(), &self.operations, &self.hosts)
    }

    /// Checks that the action may call `operation`, one of `all`.
    pub fn admit_operation<'o>(
        &self,
        operation: &str,
        all: impl Iterator<Item = &'o str>,
    ) -> Result<(), Denial> {
        if self.includes(operation) {
            return Ok(());
        }
        let granted = all.map(operation_word).collect();
        let line = GrantLine::action(
            self.file(),
            self.operations.iter().map(String::as_str).chain([operation]),
            &self.hosts,
        );
        let code = DenialCode::OperationNotGranted;
        Err(Denial::new(DenialBoundary::Action, code, &operation_word(operation), granted)
            .with_action(&self.action, self.operations.iter().map(|name| operation_word(name)).collect())
            .allowed_by(line))
    }

    /// Checks that the action may have the connector reach the host, whose manifest grants `granted`.
    pub fn admit_host(
        &self,
        (scheme, host, port): (UrlScheme, &str, u16),
        granted: impl FnOnce() -> Vec<String>,
    ) -> Result<(), Denial> {
        let same = |own: &HostGrant| own.scheme() == scheme && own.host() == host && own.port() == port;
        if self.hosts.iter().any(same) {
            return Ok(());
        }
        let clear = if scheme == UrlScheme::Http { "http://" } else { "" };
        let wanted = format!("{clear}{host}:{port}");
        let hosts = self.hosts.iter().map(ToString::to_string).chain([wanted.clone()]);
        let line = GrantLine::action(self.file(), &self.operations, hosts);
        let requested = format!("network:{wanted}");
        Err(Denial::new(DenialBoundary::Action, DenialCode::HostNotGranted, &requested, granted())
            .with_action(&self.action, self.hosts.iter().map(|own| format!("network:{own}")).collect())
            .allowed_by(line))
    }

    /// Checks that the connector has everything that the action declares: one of `operations`, and one of
    /// `hosts`, which the manifest grants.
    pub fn fits<'o>(
        &self,
        operations: impl Iterator<Item = &'o str> + Clone,
        hosts: &[HostGrant],
    ) -> Result<(), Denial> {
        for operation in &self.operations {
            if !operations.clone().any(|known| known == operation) {
                let near = cofferdam_core::suggest::nearest(operation, operations.clone());
                let fix = match near {
                    Some(near) => format!("Did the action mean {near}?"),
                    None => "Take it out of the action's file.".to_owned(),
                };
                let granted = operations.map(operation_word).collect();
                let requested = operation_word(operation);
                return Err(self
                    .overreach(DenialCode::OperationNotGranted, &requested, granted)
                    .with_alternative(fix));
            }
        }
        let Some(host) = self.hosts.iter().find(|host| !hosts.contains(host)) else { return Ok(()) };
        let granted = hosts.iter().map(|host| format!("network:{host}")).collect();
        let line = GrantLine::manifest_hosts(hosts.iter().chain([host]));
        let denial = self.overreach(DenialCode::HostNotGranted, &format!("network:{host}"), granted);
        Err(denial.allowed_by(line).with_alternative("Or take it out of the action's file."))
    }

    fn overreach(&self, code: DenialCode, requested: &str, granted: Vec<String>) -> Denial {
        let operations = self.operations.iter().map(|name| operation_word(name));
        let subset = operations.chain(self.hosts.iter().map(|host| format!("network:{host}"))).collect();
        Denial::new(DenialBoundary::ConnectorManifest, code, requested, granted)
            .with_action(&self.action, subset)
    }

    fn includes(&self, operation: &str) -> bool {
        self.operations.iter().any(|own| own == operation)
    }

    /// The name of the file that the action is written in.
    fn file(&self) -> String {
        format!("{}.md", self.action.split('@').next().unwrap_or_default())
    }
}

fn operation_word(name: &str) -> String {
    format!("operation:{name}")
}

/// Checks `name@version`.
fn check_action(action: &str) -> Result<(), InvalidValue> {
    let wrong = |why: &str| {
        let message = format!("{} does not name an action: {why}", quoted(action));
        Err(InvalidValue::new(message, "write it as <name>@<version>, like notify@1.0.0"))
    };
    let Some((name, version)) = action.split_once('@') else {
        return wrong("the version is missing");
    };
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let first = name.bytes().next().is_some_and(plain);
    if !first || name.len() > NAME_BYTES || !name.bytes().all(|b| plain(b) || b"._-".contains(&b)) {
        return wrong("a name has a-z, 0-9, `.`, `_` and `-`, and starts with a letter or digit");
    }
    if version.len() > NAME_BYTES || version.parse::<Version>().is_err() {
        return wrong("the version is not one");
    }
    Ok(())
}

pub(super) fn check_operation(name: &str) -> Result<(), InvalidValue> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if first && name.len() <= NAME_BYTES && name.bytes().all(inner) {
        return Ok(());
    }
    let message = format!("{} is not an operation's name", quoted(name));
    Err(InvalidValue::new(message, "write it as callers do, like post_message"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    fn scope() -> ActionScope {
        ActionScope::new("notify@1.0.0", ["post", "get"], ["slack.com:443"]).unwrap()
    }

    #[test]
    fn inexact_scopes_are_refused_with_a_fix() {
        for (action, operation, host, says) in [
            ("notify", "get", "slack.com:443", "the version is missing"),
            ("Notify@1.0.0", "get", "slack.com:443", "a name has a-z"),
            ("../etc@1.0.0", "get", "slack.com:443", "a name has a-z"),
            ("@1.0.0", "get", "slack.com:443", "a name has a-z"),
            ("notify@1", "get", "slack.com:443", "the version is not one"),
            ("notify@1.0.0@2.0.0", "get", "slack.com:443", "the version is not one"),
            ("notify@1.0.0", "post-message", "slack.com:443", "\"post-message\" is not an operation"),
            ("notify@1.0.0", "", "slack.com:443", "\"\" is not an operation"),
            ("notify@1.0.0", "*", "slack.com:443", "\"*\" is not an operation"),
            ("notify@1.0.0", "get", "slack.com", "as \"slack.com:443\""),
            ("notify@1.0.0", "get", "*.slack.com:443", "like \"api.slack.com:443\""),
        ] {
            let error = ActionScope::new(action, [operation], [host]).unwrap_err();
            assert!(error.to_string().contains(says), "{action} {operation} {host}: {error}");
        }
    }

    #[test]
    fn a_denial_names_the_line_of_the_actions_file() {
        let all = ["post", "get", "remove"];
        assert!(scope().admit_operation("get", all.into_iter()).is_ok());
        let denial = scope().admit_operation("remove", all.into_iter()).unwrap_err();
        assert_eq!(
            denial.message(),
            "The action notify@1.0.0 does not include operation:remove; it includes operation:post, operation:get. \
             To allow it, write `capabilities = { operations = [\"post\", \"get\", \"remove\"], hosts = [\"slack.com:443\"] }` \
             under [[requires.connectors]] in notify.md."
        );
        let other = (UrlScheme::Https, "files.slack.com", 443);
        assert!(scope().admit_host((UrlScheme::Https, "slack.com", 443), Vec::new).is_ok());
        for wanted in [other, (UrlScheme::Http, "slack.com", 443), (UrlScheme::Https, "slack.com", 8443)] {
            assert!(scope().admit_host(wanted, Vec::new).is_err(), "{wanted:?}");
        }
        let denial = scope().admit_host(other, Vec::new).unwrap_err();
        assert!(
            denial.line().unwrap().line().contains("hosts = [\"slack.com:443\", \"files.slack.com:443\"]")
        );
    }

    #[test]
    fn an_action_can_only_narrow_access() {
        let hosts = ["slack.com:443", "files.slack.com:443"].map(|host| HostGrant::parse(host).unwrap());
        let operations = ["post", "get", "remove"];
        assert!(scope().fits(operations.into_iter(), &hosts).is_ok());
        let denial = scope().fits(["post", "gets"].into_iter(), &hosts).unwrap_err();
        assert_eq!(denial.boundary(), DenialBoundary::ConnectorManifest);
        assert!(denial.message().ends_with("Did the action mean gets?"), "{denial}");
        let denial = scope().fits(operations.into_iter(), &[]).unwrap_err();
        assert_eq!(
            (denial.code(), denial.requested()),
            (DenialCode::HostNotGranted, "network:slack.com:443")
        );
        assert!(
            denial.message().contains("`hosts = [\"slack.com:443\"]` under [capabilities.network]"),
            "{denial}"
        );
    }

    #[test]
    fn the_suggested_line_is_toml() {
        let line = scope().line();
        let document: toml::Table = line.line().parse().unwrap();
        assert_eq!(document["capabilities"]["operations"].as_array().unwrap().len(), 2);
        assert_eq!((line.file(), line.table()), ("notify.md", "[[requires.connectors]]"));
    }
}
