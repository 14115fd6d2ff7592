//! The names that tools were offered under, so that nothing that is installed later takes one of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use semver::Version;
use serde::{Deserialize, Serialize};

use super::names::Wanted;
use crate::error::{HostError, HostErrorKind};
use crate::private_file::{self, FileError, FilePolicy};

const FORMAT_VERSION: u64 = 1;

/// The names decide which tool an agent calls. The largest file holds ten thousand of them, and has room.
const POLICY: FilePolicy = FilePolicy::trusted(4 * 1024 * 1024);

/// The names that were given, kept in a file of the home directory.
#[derive(Debug, Clone, Default)]
pub struct GivenNames {
    /// None where they are kept nowhere.
    path: Option<PathBuf>,
    tools: BTreeMap<String, Given>,
}

/// The tool that has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Given {
    pub(super) family: String,
    pub(super) version: Version,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u64,
    names: BTreeMap<String, Given>,
}

impl GivenNames {
    /// The names in the file at `path`, which need not be there.
    ///
    /// # Errors
    /// `configuration`: it is there and cannot be read.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, HostError> {
        let path = path.into();
        let tools = match private_file::read(&path, &POLICY).map_err(|error| failed(&path, "read", error))? {
            None => BTreeMap::new(),
            Some(text) => {
                let document = serde_json::from_slice::<Document>(&text).ok();
                let document = document.filter(|document| document.version == FORMAT_VERSION);
                document.ok_or_else(|| unusable(&path, "is not a file of tool names"))?.names
            }
        };
        Ok(Self { path: Some(path), tools })
    }

    pub(super) fn get(&self, name: &str) -> Option<&Given> {
        self.tools.get(name)
    }

    /// Notes that these tools are offered under these names. Returns whether that is new.
    pub(super) fn give<'n>(&mut self, tools: impl Iterator<Item = (&'n str, &'n Wanted)>) -> bool {
        let mut is_new = false;
        for (name, tool) in tools {
            let given = Given { family: tool.family.clone(), version: tool.version.clone() };
            is_new |= self.tools.insert(name.to_owned(), given.clone()) != Some(given);
        }
        is_new
    }

    /// Writes the file, whole or not at all.
    ///
    /// # Errors
    /// `configuration`: it cannot be written.
    pub(super) fn save(&self) -> Result<(), HostError> {
        let Some(path) = &self.path else { return Ok(()) };
        let document = Document { version: FORMAT_VERSION, names: self.tools.clone() };
        let mut json = serde_json::to_vec_pretty(&document).unwrap_or_default();
        json.push(b'\n');
        private_file::replace(path, &json, &POLICY).map_err(|error| failed(path, "written", error))
    }
}

fn failed(path: &Path, doing: &str, error: FileError) -> HostError {
    match error {
        FileError::Refused(fault) => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            fault.into_host_error(HostErrorKind::Configuration, &format!("{name} in the home directory"))
        }
        error => unusable(path, &format!("cannot be {doing}")).because(error),
    }
}

fn unusable(path: &Path, how: &str) -> HostError {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let message = format!("{name} in the home directory {how}: no tool can keep its name.");
    HostError::new(HostErrorKind::Configuration, message)
        .hint("Mend it, or remove it: then names are given as if no tool had been offered before.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::{GivenNames, Wanted};

    #[test]
    fn names_are_kept_and_only_a_good_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-names.json");
        let mut names = GivenNames::load(&path).unwrap();
        let tool = Wanted::operation("github://acme/slack", &"1.0.0".parse().unwrap(), "post");
        assert!(names.give([("slack__post", &tool)].into_iter()));
        assert!(!names.give([("slack__post", &tool)].into_iter()), "it has it already");
        names.save().unwrap();
        assert_eq!(GivenNames::load(&path).unwrap().get("slack__post"), names.get("slack__post"));
        let good = std::fs::read_to_string(&path).unwrap();
        for bad in
            ["", "{}", "[]", &good.replace("\"version\": 1,", "\"version\": 2,"), &good.replace("1.0.0", "1")]
        {
            std::fs::write(&path, bad).unwrap();
            assert!(GivenNames::load(&path).is_err(), "{bad}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(GivenNames::load(&path).unwrap().get("slack__post"), None);
    }
}
