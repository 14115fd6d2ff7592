//! `connectors.lock`: the chosen packages, with their hashes, their signers and the access that was accepted.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_core::digest::Digest;
use cofferdam_core::document::{DocumentTable, InvalidValue, read};
use cofferdam_core::error::HostError;
use cofferdam_distribution::PackageRef;
use cofferdam_model::manifest::{ConnectorName, exact_version};
use semver::Version;
use serde::Serialize;

use super::ConnectorRequirement;
use crate::files;

const FORMAT: u64 = 1;

/// The file's header comment.
const HEADER: &str = "# The chosen packages of connectors.toml, and the access that was accepted for them.\n\
    # `cofferdam sync` and `cofferdam update` write this file. Keep it under version control: `cofferdam sync --locked`\n\
    # installs exactly these packages.\n";

/// The chosen packages, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LockFile {
    pub(crate) connectors: BTreeMap<ConnectorName, LockedConnector>,
}

/// A chosen package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LockedConnector {
    pub(crate) version: Version,
    /// The source in `connectors.toml` from which it was chosen.
    pub(crate) source: String,
    /// The reference of the package, with its digest if it is on a registry; none for a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resolved: Option<String>,
    /// The SHA-256 of the package.
    #[serde(serialize_with = "hash_text")]
    pub(crate) hash: Digest,
    /// The ids of the keys that signed it; for a successor, that of the first key.
    pub(crate) signers: Vec<String>,
    /// The access that was accepted, as lines.
    pub(crate) grants: Vec<String>,
}

fn hash_text<S: serde::Serializer>(hash: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("sha256:{hash}"))
}

#[derive(Serialize)]
struct LockedTable<'l> {
    name: &'l ConnectorName,
    #[serde(flatten)]
    connector: &'l LockedConnector,
}

impl LockedConnector {
    /// Returns true if it is a choice that `requirement` allows.
    pub(crate) fn fits(&self, requirement: &ConnectorRequirement) -> bool {
        self.source == requirement.source && requirement.version.matches(&self.version)
    }
}

impl LockFile {
    /// Reads the file. None if it does not exist.
    pub(crate) fn load(path: &Path) -> Result<Option<Self>, HostError> {
        let Some(bytes) = files::read_if_there("The lock file", path)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&bytes);
        let parsed = read(&files::shown(path), &text, |root| {
            root.reject_unknown_keys(&["format", "connector"]);
            let format = root.integer("format");
            if format.as_ref().is_none_or(|format| format.value != FORMAT) {
                let fix = "use the version of cofferdam that wrote it, or make it anew with `cofferdam sync`";
                let place = format.map_or_else(|| root.location(), |format| format.with_value(()));
                place.refuse(InvalidValue::new(format!("the format of the lock file is not {FORMAT}"), fix));
            }
            let mut connectors = BTreeMap::new();
            for table in root.tables("connector") {
                if let Some((name, connector)) = locked(&table)
                    && connectors.insert(name, connector).is_some()
                {
                    let refused = InvalidValue::new("this connector is locked twice", "keep one of the two");
                    table.location().refuse(refused);
                }
            }
            Some(Self { connectors })
        });
        parsed.map(Some).map_err(files::document_error)
    }

    /// Writes the file in one step.
    pub(crate) fn write(&self, path: &Path) -> Result<(), HostError> {
        files::write_whole(path, self.to_text().as_bytes())
    }

    fn to_text(&self) -> String {
        let mut text = format!("{HEADER}format = {FORMAT}\n");
        for (name, connector) in &self.connectors {
            text.push_str("\n[[connector]]\n");
            // Strings and lists of strings: the serialization cannot fail.
            text.push_str(&toml::to_string_pretty(&LockedTable { name, connector }).unwrap_or_default());
        }
        text
    }
}

fn locked(table: &DocumentTable<'_>) -> Option<(ConnectorName, LockedConnector)> {
    table.reject_unknown_keys(&["name", "version", "source", "resolved", "hash", "signers", "grants"]);
    let name = table.required_text("name", "name = \"github://acme/slack\"");
    let name = name.and_then(|text| text.parse(|text| ConnectorName::parse(text)));
    let version = table.required_text("version", "version = \"1.2.0\"");
    let version = version.and_then(|text| text.parse(|text| exact_version(text)));
    let source = table.required_text("source", "source = \"slack.wasm\"").map(|text| text.value.to_owned());
    let resolved = table.text("resolved").and_then(|text| {
        text.parse(|text| {
            let fix = "make the lock file anew with `cofferdam sync`";
            match text.parse::<PackageRef>() {
                Ok(PackageRef::Remote(reference)) => Ok(reference.to_string()),
                _ => Err(InvalidValue::new("this is no reference to a package on another machine", fix)),
            }
        })
    });
    let hash = table.required_text("hash", "hash = \"sha256:...\"").and_then(|text| {
        text.parse(|text| {
            let fix = "write sha256: and 64 lower-case hexadecimal digits";
            Digest::parse(text).ok_or_else(|| InvalidValue::new("this is no SHA-256", fix))
        })
    });
    let texts = |key: &str| table.texts(key).iter().map(|text| text.value.to_owned()).collect();
    let (signers, grants) = (texts("signers"), texts("grants"));
    let ((version, source), hash) = (version.zip(source)?, hash?);
    Some((name?, LockedConnector { version, source, resolved, hash, signers, grants }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fs;

    use super::*;

    #[test]
    fn a_lock_file_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("connectors.lock");
        assert_eq!(LockFile::load(&path).unwrap(), None);
        let connector = |resolved: Option<&str>| LockedConnector {
            version: Version::new(1, 2, 0),
            source: "a \"b\" \\ c.wasm".to_owned(),
            resolved: resolved.map(ToOwned::to_owned),
            hash: Digest::sha256(b"1"),
            signers: vec!["3f9a".to_owned()],
            grants: vec![
                "host a.example:443".to_owned(),
                "operation run: undeclared, repeat never".to_owned(),
            ],
        };
        let name = |text: &str| ConnectorName::parse(text).unwrap();
        let lock = LockFile {
            connectors: BTreeMap::from([
                (name("github://acme/slack"), connector(Some("https://a.example/slack.wasm"))),
                (name("local://me/tool"), connector(None)),
            ]),
        };
        lock.write(&path).unwrap();
        assert_eq!(LockFile::load(&path).unwrap(), Some(lock.clone()));
        let text = fs::read_to_string(&path).unwrap();
        for (edit, says) in [
            (text.replace("format = 1", "format = 2"), "format"),
            (text.replace("signers", "singers"), "signers"),
            (text.replace("sha256:", "sha1:"), "SHA-256"),
            (text.replace("local://me/tool", "github://acme/slack"), "twice"),
            (text.replace("https://a.example/slack.wasm", "slack.wasm"), "another machine"),
        ] {
            fs::write(&path, edit).unwrap();
            let error = LockFile::load(&path).unwrap_err();
            let all = format!("{error} {:?}", error.details());
            assert!(all.contains(says) && all.contains("connectors.lock"), "{says}: {all}");
        }
    }
}
