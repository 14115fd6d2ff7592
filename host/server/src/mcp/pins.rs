//! Pins: the tools that the operator has reviewed, by the hash of each tool's texts for agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use serde::{Deserialize, Serialize};

use super::home_file::{HomeFile, HomeFileTexts};

const VERSION: u64 = 1;

const ABOUT: HomeFileTexts = HomeFileTexts {
    what: "a file of pins",
    consequence: "no tool can be held against its pin",
    hint: "Look at `cofferdam mcp --list-tools`, and pin the tools anew with `cofferdam mcp --pin`; or remove the file.",
};

/// The file of pins. Without it, nothing is pinned, and all offered tools are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPins {
    file: HomeFile,
    /// None if there is no file.
    tools: Option<BTreeMap<String, Digest>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PinsDocument {
    version: u64,
    /// By name, `sha256:` and 64 digits.
    tools: BTreeMap<String, String>,
}

/// The status of a tool against its pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PinStatus {
    /// It is unchanged, or nothing is pinned.
    Unchanged,
    /// It differs from its pin.
    Changed,
    /// It has no pin.
    New,
}

impl ToolPins {
    /// Loads the pins in the file at `path`, which may be missing.
    ///
    /// # Errors
    /// `configuration`: it exists and cannot be read.
    pub fn load(path: impl Into<PathBuf>) -> Result<Self, HostError> {
        let file = HomeFile::new(path, &ABOUT);
        let tools = file.read(parse)?;
        Ok(Self { file, tools })
    }

    /// Returns no pins, whatever the file at `path` contains.
    #[must_use]
    pub fn none(path: impl Into<PathBuf>) -> Self {
        Self { file: HomeFile::new(path, &ABOUT), tools: None }
    }

    /// Returns the path of the file, which may be missing.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the same file as if it were missing.
    #[must_use]
    pub fn without_pins(&self) -> Self {
        Self { file: self.file.clone(), tools: None }
    }

    /// Returns the number of pinned tools; none if there is no file.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        self.tools.as_ref().map(BTreeMap::len)
    }

    /// Writes the file atomically with exactly these tools, and returns it.
    pub(super) fn save(&self, tools: BTreeMap<String, Digest>) -> Result<Self, HostError> {
        let texts = tools.iter().map(|(name, pin)| (name.clone(), format!("sha256:{pin}"))).collect();
        self.file.write(&PinsDocument { version: VERSION, tools: texts })?;
        Ok(Self { file: self.file.clone(), tools: Some(tools) })
    }

    /// Returns the status of the tool `name` with the hash `pin`.
    pub(super) fn status(&self, name: &str, pin: &Digest) -> PinStatus {
        let Some(tools) = &self.tools else { return PinStatus::Unchanged };
        match tools.get(name) {
            None => PinStatus::New,
            Some(pinned) if pinned == pin => PinStatus::Unchanged,
            Some(_) => PinStatus::Changed,
        }
    }
}

fn parse(document: PinsDocument) -> Option<BTreeMap<String, Digest>> {
    let tools = document.tools.into_iter().map(|(name, pin)| Digest::parse(&pin).map(|pin| (name, pin)));
    tools.collect::<Option<_>>().filter(|_| document.version == VERSION)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::collections::BTreeMap;

    use std::os::unix::fs::PermissionsExt as _;

    use super::{Digest, PinStatus, ToolPins};

    #[test]
    fn pins_writable_by_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-pins.json");
        ToolPins::none(&path).save(BTreeMap::new()).unwrap();
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let refused = |what: &str| {
            let error = ToolPins::load(&path).unwrap_err();
            assert!(error.message().contains(what), "{error}");
        };
        mode(&path, 0o666);
        refused("can be written by others");
        mode(&path, 0o600);
        mode(dir.path(), 0o777);
        refused("another user can change");
        mode(dir.path(), 0o700);
        let other = dir.path().join("other");
        std::fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        refused("is a symbolic link");
    }

    #[test]
    fn pins_hold_tools_and_bad_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp-pins.json");
        let none = ToolPins::load(&path).unwrap();
        let (one, two) = (Digest::sha256(b"1"), Digest::sha256(b"2"));
        assert_eq!((none.count(), none.status("a", &one)), (None, PinStatus::Unchanged));
        none.save(BTreeMap::from([("a".to_owned(), one)])).unwrap();
        let pins = ToolPins::load(&path).unwrap();
        assert_eq!((pins.count(), pins.status("a", &one)), (Some(1), PinStatus::Unchanged));
        assert_eq!((pins.status("a", &two), pins.status("b", &one)), (PinStatus::Changed, PinStatus::New));
        pins.save(BTreeMap::new()).unwrap();
        assert_eq!(
            ToolPins::load(&path).unwrap().status("a", &one),
            PinStatus::New,
            "none are pinned, which is not no pins"
        );
        let good = std::fs::read_to_string(&path).unwrap();
        for bad in ["", "{}", "[]", &good.replace('1', "2"), &good.replace("{}", "{\"a\": \"sha256:0\"}")] {
            std::fs::write(&path, bad).unwrap();
            assert!(ToolPins::load(&path).is_err(), "{bad}");
        }
    }
}
