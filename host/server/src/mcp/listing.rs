//! The tools for the operator: by name, with the target of each, its text for agents, and the withheld ones.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Serialize;
use serde_json::Value;

use super::catalog::ToolCatalog;
use super::pins::ToolPins;
use super::tool_names::GivenNames;

/// All tools.
#[derive(Debug, Clone, Serialize)]
pub struct ToolListing {
    /// The offered tools.
    pub tools: Vec<ListedTool>,
    /// The requested items that are not offered, and the items that filters leave out.
    pub withheld: Vec<WithheldTool>,
}

/// A tool that is offered.
#[derive(Debug, Clone, Serialize)]
pub struct ListedTool {
    /// Its name.
    pub name: String,
    /// The operation or action that it runs.
    pub runs: String,
    /// The pinned hash of everything that agents read of it.
    pub pin: String,
    /// Everything that agents read of it, in the form of `tools/list`.
    pub tool: Value,
}

/// A tool that is not offered.
#[derive(Debug, Clone, Serialize)]
pub struct WithheldTool {
    /// Its name, or its connector's.
    pub name: String,
    /// The reason.
    pub why: String,
}

impl ToolCatalog {
    /// The tools for the operator to read.
    #[must_use]
    pub fn listing(&self) -> ToolListing {
        let tools = self.tools().iter().map(|named| ListedTool {
            name: named.tool.name.to_string(),
            runs: named.runs().describe(),
            pin: format!("sha256:{}", named.pin),
            tool: serde_json::to_value(&named.tool).unwrap_or_default(),
        });
        let withheld = self.withheld().iter().chain(self.left_out());
        let withheld = withheld.map(|one| WithheldTool { name: one.name.clone(), why: one.why.clone() });
        ToolListing { tools: tools.collect(), withheld: withheld.collect() }
    }

    /// Pins exactly these tools, under their present names.
    ///
    /// # Errors
    /// `configuration`: the file cannot be written. `conflict`: another server gave one of the names to
    /// another tool since they were read.
    pub fn pin(&self, pins: &ToolPins, mut names: GivenNames) -> Result<ToolPins, HostError> {
        let lock = names.lock()?;
        if self.tools().iter().any(|tool| names.is_taken(&tool.tool.name, &tool.draft.wanted)) {
            let message = "Another server gave one of these names to another tool in the meantime.";
            return Err(HostError::new(HostErrorKind::Conflict, message).with_hint("Pin again."));
        }
        if self.assign_names(&mut names) {
            names.save(&lock)?;
        }
        let hashes: BTreeMap<_, _> = self.hashes();
        pins.save(hashes)
    }
}

/// The longest accepted cursor, in bytes; a name has 64.
const LONGEST: usize = 256;

/// The number of digits that distinguish a cursor from any other text.
const MARK: usize = 16;

/// Returns the cursor to the tools after this name.
pub(super) fn after(name: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(name), mark(name))
}

/// Returns the name in the cursor; none if it is no cursor of this list. The tool need not exist any more:
/// the list is sorted, and continues after its position.
pub(super) fn read(cursor: &str) -> Option<String> {
    if cursor.len() > LONGEST {
        return None;
    }
    let (name, own) = cursor.split_once('.')?;
    let name = String::from_utf8(URL_SAFE_NO_PAD.decode(name).ok()?).ok()?;
    (mark(&name) == own).then_some(name)
}

/// Returns the mark. It is no secret: a forged cursor only reads a part of a list that the client may read
/// completely.
fn mark(name: &str) -> String {
    Digest::sha256(format!("tools after {name}").as_bytes()).to_string().chars().take(MARK).collect()
}

#[cfg(test)]
mod tests {

    use super::{after, read};

    #[test]
    fn forged_cursors_are_refused() {
        let cursor = after("slack__post_message");
        assert_eq!(read(&cursor).as_deref(), Some("slack__post_message"));
        let other = after("slack__post_messagf");
        let mixed =
            format!("{}.{}", cursor.split('.').next().unwrap_or_default(), &other[other.len() - 16..]);
        for foreign in [
            "",
            ".",
            "1000",
            "slack__post_message",
            "c2xhY2s",
            "c2xhY2s.",
            "\u{0}\u{1b}[31m.x",
            &cursor[1..],
            &cursor[..cursor.len() - 1],
            &format!("{cursor}0"),
            &cursor.to_uppercase(),
            &mixed,
            &"x".repeat(1 << 20),
        ] {
            assert_eq!(read(foreign), None, "{}", &foreign[..foreign.len().min(100)]);
        }
    }
}
