//! `GET /v1/connectors/{name}/difference`: the changes between two installed versions of a connector.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{ComparedPackage, Host, PackageChange, PackageDifference};
use schemars::JsonSchema;
use serde::Serialize;

use super::audit::{Parameters, parameters};
use super::calls::read_queued;
use super::connectors::{named, other_versions};
use super::query::{self, QueryParameters};
use super::{HttpApi, response};

/// The longest text of a change, in characters.
const LONGEST: usize = 600;

/// The changes between two installed versions of a connector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConnectorDifference {
    /// The version that is compared with.
    pub before: ComparedVersion,
    /// The version that the path names.
    pub after: ComparedVersion,
    /// True if a change is `wider`: the connector may do more, or its signer or its source repository changed.
    pub wider: bool,
    /// The changes, the heaviest first.
    pub changes: Vec<VersionChange>,
}

/// A version in a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ComparedVersion {
    /// The name of the connector, without the version.
    pub name: String,
    /// The version.
    pub version: String,
    /// `sha256:` and 64 digits.
    pub hash: String,
}

/// A change between two versions. Long texts begin shortly before their first difference, and are cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct VersionChange {
    /// Its weight: `wider`, `changed` (callers or agents notice it), `narrower` (the connector may do less) or `note`.
    pub severity: String,
    /// The part of the package: `identity`, `network`, `methods`, `credentials`, `imports`, `limits`, `operations`,
    /// `package`, `provenance` or `dependencies`.
    pub part: String,
    /// The host, credential, import, limit or operation.
    pub subject: String,
    /// The change in words.
    pub what: String,
    /// The state before; none if there was none.
    pub before: Option<String>,
    /// The state after; none if there is none.
    pub after: Option<String>,
}

impl From<ComparedPackage> for ComparedVersion {
    fn from(package: ComparedPackage) -> Self {
        let ComparedPackage { name, version, hash } = package;
        Self { name, version, hash }
    }
}

impl From<&PackageChange> for VersionChange {
    fn from(change: &PackageChange) -> Self {
        let text = |text: &str| sanitize_line(text, LONGEST);
        let (before, after) = change.excerpts(LONGEST);
        Self {
            severity: change.severity.name().to_owned(),
            part: change.part.to_owned(),
            subject: text(&change.subject),
            what: text(&change.what),
            before: change.before.is_some().then(|| text(before)),
            after: change.after.is_some().then(|| text(after)),
        }
    }
}

impl From<PackageDifference> for ConnectorDifference {
    fn from(difference: PackageDifference) -> Self {
        Self {
            wider: difference.is_wider(),
            changes: difference.changes.iter().map(VersionChange::from).collect(),
            before: difference.before.into(),
            after: difference.after.into(),
        }
    }
}

impl HttpApi {
    /// Returns the changes to a connector, `name@version` or the name of an active version, from the version that the
    /// parameters of `GET /v1/connectors/{name}/difference` select.
    ///
    /// # Errors
    /// `validation`: a parameter is not acceptable, or selects the same version. `connector_not_found`: a version is not
    /// installed. `hash_mismatch`: a package was changed. A package cannot be read.
    pub async fn difference(
        &self,
        text: &str,
        parameters: Vec<(String, String)>,
    ) -> Result<ConnectorDifference, Error> {
        let from = query::difference(QueryParameters::new(parameters)?)?;
        let (host, text) = (self.host.clone(), text.to_owned());
        read_queued(self, move || {
            let after = host.resolve(&text)?;
            host.require_installed(&after)?;
            let before = ConnectorRef::new(after.name().clone(), from);
            require_other(&host, &before, &after)?;
            let (before, after) = (host.inspect_unchanged(&before)?, host.inspect_unchanged(&after)?);
            Ok(ConnectorDifference::from(PackageDifference::between(&before, &after)))
        })
        .await
    }
}

/// Refuses to compare `after` with itself, or with a version that is not installed.
fn require_other(host: &Host, before: &ConnectorRef, after: &ConnectorRef) -> Result<(), HostError> {
    let versions = other_versions(host, after)?;
    let (kind, message) = if before.version() == after.version() {
        (HostErrorKind::Validation, format!("{after} cannot be compared with itself."))
    } else if versions.contains(&before.version().to_string()) {
        return Ok(());
    } else {
        let before = sanitize_line(&before.to_string(), 250);
        (HostErrorKind::ConnectorNotFound, format!("{before} is not installed."))
    };
    let hint = match versions.is_empty() {
        true => "No other version of it is installed.".to_owned(),
        false => format!("Other installed versions: {}.", versions.join(", ")),
    };
    Err(HostError::new(kind, message).with_hint(hint))
}

/// Shows the changes.
pub(super) async fn show(
    State(api): State<HttpApi>,
    name: Result<Path<(String, String, String)>, PathRejection>,
    query: Parameters,
) -> Response {
    let named = name.ok().and_then(|Path((scheme, owner, name))| named(&scheme, &owner, &name));
    let Some(connector) = named else { return response::no_such_path() };
    let difference: Result<_, Error> = async { api.difference(&connector, parameters(query)?).await }.await;
    match difference {
        Ok(difference) => response::view(&difference),
        Err(error) => response::error(&error),
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_runtime::host::ChangeSeverity;

    use super::*;

    fn change(severity: ChangeSeverity, before: Option<&str>, after: Option<&str>) -> PackageChange {
        PackageChange {
            severity,
            part: "operations",
            subject: "post\u{202e}\n".to_owned(),
            what: "its description changed\u{0}".to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        }
    }

    #[test]
    fn texts_of_packages_are_printable_and_bounded() {
        let same = "x".repeat(2 * LONGEST);
        let (before, after) = (format!("{same}before\u{200b}"), format!("{same}after{same}"));
        let view = VersionChange::from(&change(ChangeSeverity::Changed, Some(&before), Some(&after)));
        assert_eq!(
            (&*view.severity, &*view.subject, &*view.what),
            ("changed", "post", "its description changed")
        );
        assert!(view.before.is_some_and(|before| before.ends_with("xbefore") && before.len() < 100));
        assert!(
            view.after.is_some_and(|after| after.contains("xafterx") && after.chars().count() <= LONGEST + 1)
        );
        let added = VersionChange::from(&change(ChangeSeverity::Note, None, Some("")));
        assert_eq!((added.before, added.after.as_deref()), (None, Some("")));
    }

    #[test]
    fn only_wider_changes_make_a_difference_wider() {
        let package = || ComparedPackage { name: String::new(), version: String::new(), hash: String::new() };
        let is_wider = |severities: &[ChangeSeverity]| {
            let changes = severities.iter().map(|severity| change(*severity, None, None)).collect();
            ConnectorDifference::from(PackageDifference { before: package(), after: package(), changes })
                .wider
        };
        assert!(is_wider(&ChangeSeverity::ALL) && !is_wider(&[]));
        assert!(!is_wider(&[ChangeSeverity::Changed, ChangeSeverity::Narrower, ChangeSeverity::Note]));
    }
}
