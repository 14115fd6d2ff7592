//! `connectors.toml`: the wanted connectors, with version requirements and sources.

use std::path::{Path, PathBuf};

use cofferdam_core::document::{DocumentTable, InvalidValue, quoted, read};
use cofferdam_core::error::HostError;
use cofferdam_distribution::PackageRef;
use cofferdam_model::manifest::ConnectorName;
use semver::VersionReq;

use crate::files;

/// The most connectors of a set.
const MAX_CONNECTORS: usize = 1_000;

/// The wanted connectors.
#[derive(Debug)]
pub(crate) struct ConnectorSet {
    path: PathBuf,
    connectors: Vec<ConnectorRequirement>,
}

/// A wanted connector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectorRequirement {
    pub(crate) name: ConnectorName,
    /// The versions that may be chosen.
    pub(crate) version: VersionReq,
    /// The source as it is written.
    pub(crate) source: String,
    /// The source; a path is relative to the directory of the process.
    pub(crate) package: PackageRef,
}

impl ConnectorSet {
    /// Reads the file.
    pub(crate) fn load(path: &Path) -> Result<Self, HostError> {
        let text = files::read_text("The set of connectors", path).map_err(|error| {
            error.with_hint(
                "Write it with a [[connector]] for each connector, as `cofferdam sync --help` shows.",
            )
        })?;
        let dir = path.parent().unwrap_or(Path::new(""));
        let connectors = read(&files::shown(path), &text, |root| {
            root.reject_unknown_keys(&["connector"]);
            let mut connectors: Vec<ConnectorRequirement> = Vec::new();
            for table in root.tables("connector") {
                if connectors.len() == MAX_CONNECTORS {
                    let message = format!("the set has more than {MAX_CONNECTORS} connectors");
                    table.location().refuse(InvalidValue::new(message, "split it into several homes"));
                    break;
                }
                connectors.extend(requirement(&table, dir, &connectors));
            }
            Some(connectors)
        });
        let connectors = connectors.map_err(files::document_error)?;
        Ok(Self { path: path.to_owned(), connectors })
    }

    /// The path of the lock file: `connectors.lock` for `connectors.toml`.
    pub(crate) fn lock_path(&self) -> PathBuf {
        self.path.with_extension("lock")
    }

    /// The wanted connectors, in the order of the file.
    pub(crate) fn connectors(&self) -> &[ConnectorRequirement] {
        &self.connectors
    }
}

fn requirement(
    table: &DocumentTable<'_>,
    dir: &Path,
    before: &[ConnectorRequirement],
) -> Option<ConnectorRequirement> {
    table.reject_unknown_keys(&["name", "version", "source"]);
    let name = table.required_text("name", "name = \"github://acme/slack\"").and_then(|text| {
        let name = text.parse(|text| ConnectorName::parse(text))?;
        if before.iter().any(|other| other.name == name) {
            text.refuse(InvalidValue::new("this connector is in the set already", "keep one of the two"));
        }
        Some(name)
    });
    let version = match table.text("version") {
        Some(text) => text.parse(|text| version_requirement(text)),
        None => Some(VersionReq::STAR),
    };
    let example = "source = \"oci://registry.example/acme/slack\"";
    let source = table.required_text("source", example).and_then(|text| {
        let package = text.parse(|text| {
            let fix = "write a path, https://... or oci://HOST/REPOSITORY";
            text.parse::<PackageRef>().map_err(|error| InvalidValue::new(error.to_string(), fix))
        })?;
        Some((text.value.to_owned(), package))
    });
    let ((name, version), (source, package)) = (name.zip(version)?, source?);
    let package = match package {
        PackageRef::File(path) => PackageRef::File(dir.join(path)),
        remote => remote,
    };
    Some(ConnectorRequirement { name, version, source, package })
}

/// Parses a requirement such as `1.2` (1.2.0 or a later 1.x), `~1.2.3` or `=1.2.3`.
fn version_requirement(text: &str) -> Result<VersionReq, InvalidValue> {
    VersionReq::parse(text).map_err(|error| {
        let message = format!("{} is not a version requirement: {error}", quoted(text));
        InvalidValue::new(message, "write it like \"1.2\" (1.2.0 or a later 1.x), \"~1.2.3\" or \"=1.2.3\"")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use std::fs;

    use super::*;

    fn set(text: &str) -> Result<ConnectorSet, HostError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("connectors.toml");
        fs::write(&path, text).unwrap();
        ConnectorSet::load(&path)
    }

    #[test]
    fn a_set_has_names_versions_and_sources() {
        let set = set("[[connector]]\nname = \"github://acme/slack\"\nversion = \"1.2\"\n\
             source = \"oci://registry.example/acme/slack\"\n\
             [[connector]]\nname = \"local://me/tool\"\nsource = \"tools/tool.wasm\"\n")
        .unwrap();
        let [slack, tool] = set.connectors() else { panic!("{set:?}") };
        assert!(slack.version.matches(&"1.9.0".parse().unwrap()));
        assert!(!slack.version.matches(&"2.0.0".parse().unwrap()));
        assert!(matches!(&tool.package, PackageRef::File(path) if path.is_absolute()), "{tool:?}");
        assert!(set.lock_path().ends_with("connectors.lock"));
    }

    #[test]
    fn mistakes_name_the_line_and_the_fix() {
        let slack = "[[connector]]\nname = \"github://acme/slack\"\nsource = \"a.wasm\"\n";
        for (text, line, says) in [
            (format!("{slack}vesion = \"1\"\n"), 4, "version"),
            (format!("{slack}version = \"one\"\n"), 4, "write it like"),
            (format!("{slack}{slack}"), 5, "in the set already"),
            ("[[connector]]\nname = \"slack\"\nsource = \"a.wasm\"\n".to_owned(), 2, "name"),
            ("[[connector]]\nname = \"github://acme/slack\"\n".to_owned(), 1, "oci://"),
            (slack.replace("a.wasm", "http://a.example/x.wasm"), 3, "https://"),
        ] {
            let error = set(&text).unwrap_err();
            let all = format!("{error} {:?}", error.details());
            assert!(all.contains(&format!(":{line}:")) && all.contains(says), "{text}{all}");
        }
    }
}
