//! Provenance: the sources and the tools that a package was made from, as its signer claims.
//!
//! Nothing of it decides whether a package runs. It is for reviewers, and for a rebuild that compares the bytes.

use std::fmt;
use std::path::{Component, Path};

use cofferdam_core::failure::sanitize_line;
use serde::{Deserialize, Serialize};
use url::Url;

/// Largest provenance, in bytes of its JSON: about 800 dependencies.
const MAX_BYTES: usize = 128 * 1024;

/// Longest text in it, in bytes.
const MAX_TEXT: usize = 512;

/// The content of a provenance, not checked yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvenanceRecord {
    /// The sources. None if they were in no repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceRecord>,
    /// The tools that made the package, with this program.
    pub tools: Vec<ToolRecord>,
    /// The target that the dependencies were resolved for.
    pub target: String,
    /// The dependencies, by name and version.
    pub dependencies: Vec<DependencyRecord>,
}

/// A revision of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The repository. None if it has no remote that others could reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryUrl>,
    /// The commit, as a hexadecimal hash.
    pub commit: String,
    /// The connector's directory in the repository; empty for its root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// True if the files were those of the commit.
    pub clean: bool,
}

/// A tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRecord {
    /// Its name, for example `rustc`.
    pub name: String,
    /// Its version, as it prints it.
    pub version: String,
}

impl fmt::Display for ToolRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// A dependency that was compiled or bundled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DependencyRecord {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its source: `crates.io`, `pypi`, `npm`, another registry, or a repository with its commit. None for one that is
    /// a part of the sources, or on the machine of the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The checksum in the lock file, with its algorithm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// True if it ran during the build and is not a part of the component.
    #[serde(default, skip_serializing_if = "is_false")]
    pub build: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// The address of a repository, without credentials: `https`, `http`, `ssh` or `git`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct RepositoryUrl(String);

impl RepositoryUrl {
    /// Takes the address of a remote, in git's short form for SSH too. Its user, password, query and fragment are left
    /// out, except the user `git` of SSH, which is the same for every person. None for a path of this machine.
    #[must_use]
    pub fn from_remote(remote: &str) -> Option<Self> {
        let remote = remote.trim();
        let short = match remote.contains("://") {
            true => None,
            // Two colons follow the name of a helper program.
            false => {
                remote.split_once(':').filter(|(host, path)| !host.contains('/') && !path.starts_with(':'))
            }
        };
        let mut url = match short {
            Some((host, path)) => Url::parse(&format!("ssh://{host}/{}", path.trim_start_matches('/'))),
            None => Url::parse(remote),
        }
        .ok()?;
        if !["https", "http", "ssh", "git"].contains(&url.scheme())
            || url.host_str().is_none_or(str::is_empty)
        {
            return None;
        }
        let is_common = url.scheme() == "ssh" && url.username() == "git";
        if !is_common {
            url.set_username("").ok()?;
        }
        url.set_password(None).ok()?;
        url.set_query(None);
        url.set_fragment(None);
        let text = String::from(url);
        is_text(&text, false).then_some(Self(text))
    }

    /// Returns the address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RepositoryUrl {
    type Error = ProvenanceError;

    fn try_from(text: String) -> Result<Self, ProvenanceError> {
        let url = Self::from_remote(&text).filter(|url| url.0 == text);
        url.ok_or_else(|| ProvenanceError::new("repository", "it is not an address without credentials"))
    }
}

impl fmt::Display for RepositoryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The reason why a record is not a provenance: the field, and the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its provenance is invalid: {field}: {reason}")]
pub struct ProvenanceError {
    field: &'static str,
    reason: String,
}

impl ProvenanceError {
    fn new(field: &'static str, reason: &str) -> Self {
        Self { field, reason: sanitize_line(reason, 200) }
    }
}

/// A provenance: printable texts of bounded length, which all together have at most 128 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ProvenanceRecord", into = "ProvenanceRecord")]
pub struct Provenance(ProvenanceRecord);

impl Provenance {
    /// Returns its content.
    #[must_use]
    pub fn record(&self) -> &ProvenanceRecord {
        &self.0
    }
}

impl From<Provenance> for ProvenanceRecord {
    fn from(provenance: Provenance) -> Self {
        provenance.0
    }
}

impl TryFrom<ProvenanceRecord> for Provenance {
    type Error = ProvenanceError;

    fn try_from(record: ProvenanceRecord) -> Result<Self, ProvenanceError> {
        if let Some(source) = &record.source {
            let is_hash = [40, 64].contains(&source.commit.len())
                && source.commit.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if !is_hash {
                return Err(ProvenanceError::new("commit", "it is not 40 or 64 hexadecimal digits"));
            }
            let path = Path::new(&source.directory);
            let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
            let is_clear = source.directory.chars().all(|character| !character.is_control());
            if !is_below || !is_clear || source.directory.len() > MAX_TEXT {
                return Err(ProvenanceError::new("directory", "it is not a path within the repository"));
            }
        }
        check("target", &record.target, false)?;
        for tool in &record.tools {
            check("tools", &tool.name, false)?;
            check("tools", &tool.version, true)?;
        }
        for dependency in &record.dependencies {
            check("dependencies", &dependency.name, false)?;
            check("dependencies", &dependency.version, false)?;
            for text in dependency.source.iter().chain(&dependency.checksum) {
                check("dependencies", text, false)?;
            }
        }
        // Strings and lists alone: the serialization cannot fail.
        if serde_json::to_vec(&record).map_or(0, |json| json.len()) > MAX_BYTES {
            return Err(ProvenanceError::new("dependencies", "it has more than 128 KiB"));
        }
        Ok(Self(record))
    }
}

fn check(field: &'static str, text: &str, spaced: bool) -> Result<(), ProvenanceError> {
    match is_text(text, spaced) {
        true => Ok(()),
        false => {
            Err(ProvenanceError::new(field, &format!("`{text}` is empty, too long or not printable ASCII")))
        }
    }
}

/// Returns whether the text is printable ASCII of an acceptable length, with spaces only if it is `spaced`.
fn is_text(text: &str, spaced: bool) -> bool {
    let allowed = |byte: u8| byte.is_ascii_graphic() || (spaced && byte == b' ');
    !text.is_empty() && text.len() <= MAX_TEXT && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
    use super::*;

    #[test]
    fn an_address_has_no_credentials_and_no_local_path() {
        for (remote, expected) in [
            ("https://github.com/acme/slack.git", Some("https://github.com/acme/slack.git")),
            ("https://user:ghp_token@github.com/acme/slack", Some("https://github.com/acme/slack")),
            ("https://ghp_token@github.com/acme/slack?x=token#y", Some("https://github.com/acme/slack")),
            ("git@github.com:acme/slack.git", Some("ssh://git@github.com/acme/slack.git")),
            ("ada@git.example:/srv/slack.git", Some("ssh://git.example/srv/slack.git")),
            ("ssh://ada:secret@git.example:2222/slack", Some("ssh://git.example:2222/slack")),
            ("git://git.example/slack", Some("git://git.example/slack")),
            ("/home/ada/slack", None),
            ("../slack", None),
            ("./a:b", None),
            ("file:///home/ada/slack", None),
            ("ext::sh -c id", None),
            ("https://", None),
            ("", None),
        ] {
            let found = RepositoryUrl::from_remote(remote);
            assert_eq!(found.as_ref().map(RepositoryUrl::as_str), expected, "{remote}");
            if let Some(found) = found {
                assert_eq!(
                    RepositoryUrl::try_from(found.to_string()).unwrap(),
                    found,
                    "it reads as it was written"
                );
            }
        }
        assert!(RepositoryUrl::try_from("https://user:token@github.com/a/b".to_owned()).is_err());
    }

    fn record() -> ProvenanceRecord {
        ProvenanceRecord {
            source: Some(SourceRecord {
                repository: RepositoryUrl::from_remote("https://github.com/acme/slack"),
                commit: "0123456789abcdef0123456789abcdef01234567".into(),
                directory: "connectors/slack".into(),
                clean: true,
            }),
            tools: vec![ToolRecord { name: "rustc".into(), version: "1.95.0 (59807616e 2026-04-14)".into() }],
            target: "wasm32-wasip2".into(),
            dependencies: vec![DependencyRecord {
                name: "serde".into(),
                version: "1.0.228".into(),
                source: Some("crates.io".into()),
                checksum: Some("sha256:00".into()),
                build: false,
            }],
        }
    }

    #[test]
    fn a_provenance_reads_as_it_was_written() {
        let provenance = Provenance::try_from(record()).unwrap();
        let json = serde_json::to_string(&provenance).unwrap();
        assert_eq!(serde_json::from_str::<Provenance>(&json).unwrap(), provenance);
        let more = json.replacen('{', r#"{"later": {"x": 1}, "#, 1);
        assert_eq!(
            serde_json::from_str::<Provenance>(&more).unwrap(),
            provenance,
            "unknown fields are ignored"
        );
    }

    #[test]
    fn invalid_provenances_are_refused() {
        type Edit = fn(&mut ProvenanceRecord);
        let edits: [(&str, Edit); 9] = [
            ("commit", |it| it.source.as_mut().unwrap().commit = "main".into()),
            ("directory", |it| it.source.as_mut().unwrap().directory = "../other".into()),
            ("directory", |it| it.source.as_mut().unwrap().directory = "/home/ada".into()),
            ("directory", |it| it.source.as_mut().unwrap().directory = "a\u{1b}[2J".into()),
            ("target", |it| it.target = String::new()),
            ("tools", |it| it.tools[0].version = "1.0\n2.0".into()),
            ("dependencies", |it| it.dependencies[0].name = "s\u{435}rde".into()),
            ("dependencies", |it| it.dependencies[0].checksum = Some("x".repeat(MAX_TEXT + 1))),
            ("dependencies", |it| {
                let many = std::iter::repeat_n(it.dependencies[0].clone(), MAX_BYTES / 50);
                it.dependencies = many.collect();
            }),
        ];
        for (field, edit) in edits {
            let mut record = record();
            edit(&mut record);
            let error = Provenance::try_from(record).unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
    }
}
