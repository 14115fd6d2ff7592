//! The tools there are at one moment: read from what is installed and verified, named, and held against the pins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rmcp::model::Tool;

use super::names;
use super::offer::Offer;
use super::pins::{Pins, Said};
use super::tool::{Named, Unnamed};
use crate::action::{Action, Requirement};
use crate::call::ConnectorRef;
use crate::digest::Digest;
use crate::error::{HostError, HostErrorKind};
use crate::host::Host;

/// Tools in one answer to `tools/list`; there is a cursor to the others.
const PAGE: usize = 1_000;

/// The tools, by name.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tools: Vec<Named>,
    by_name: HashMap<String, usize>,
    withheld: Vec<Withheld>,
}

/// Something that was asked for and is not offered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Withheld {
    /// The tool's name, or what stands for a connector that has none.
    pub name: String,
    /// Why, in a sentence for the operator.
    pub why: String,
}

impl Withheld {
    fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), why: why.into() }
    }
}

impl Catalog {
    /// Reads what `offer` offers of what is installed. Verifies every package that it reads, as a call would, and
    /// checks every action.
    ///
    /// # Errors
    /// The index, or the directory of actions, cannot be read.
    pub async fn read(host: &Host, offer: &Arc<Offer>, pins: &Pins) -> Result<Self, HostError> {
        let (reading, wanted) = (host.clone(), Arc::clone(offer));
        let read = tokio::task::spawn_blocking(move || {
            let mut withheld = Vec::new();
            let found = operations(&reading, &wanted, &mut withheld)?;
            Ok::<_, HostError>((found, withheld, reading.actions()?))
        });
        let lost =
            |error| HostError::new(HostErrorKind::Internal, "The tools could not be read.").because(error);
        let (mut found, mut withheld, shelved) = read.await.map_err(lost)??;
        for shelved in shelved {
            match action(host, offer, shelved.action).await {
                Ok(tool) => found.extend(tool),
                Err(error) => withheld.push(Withheld::new(shelved.name, error.message())),
            }
        }
        if offer.is_read_only() {
            found.retain(Unnamed::is_read_only);
        }
        let wanted: Vec<_> = found.iter().map(|tool| tool.wanted.clone()).collect();
        let named = found.into_iter().zip(names::assigned(&wanted)).map(|(tool, name)| tool.named(name));
        let mut tools = Vec::new();
        for tool in named {
            let name = tool.tool.name.to_string();
            match pins.say(&name, &tool.pin) {
                Said::Fine => tools.push(tool),
                Said::Changed => {
                    let why =
                        format!("{} is not what was pinned: read it and pin it anew", tool.runs.shown());
                    withheld.push(Withheld::new(name, why));
                }
                Said::New => {
                    let why = format!("{} is not pinned: read it and pin it", tool.runs.shown());
                    withheld.push(Withheld::new(name, why));
                }
            }
        }
        tools.sort_by(|one, other| one.tool.name.cmp(&other.tool.name));
        withheld.sort();
        let by_name = tools.iter().enumerate().map(|(at, tool)| (tool.tool.name.to_string(), at)).collect();
        Ok(Self { tools, by_name, withheld })
    }

    /// What was asked for and is not offered.
    #[must_use]
    pub fn withheld(&self) -> &[Withheld] {
        &self.withheld
    }

    pub(super) fn tools(&self) -> &[Named] {
        &self.tools
    }

    pub(super) fn get(&self, name: &str) -> Option<&Named> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// The tools after the one that is called `after`, and after which of them there are more.
    pub(super) fn page(&self, after: Option<&str>) -> (Vec<Tool>, Option<String>) {
        let from = after.map_or(0, |after| self.tools.partition_point(|tool| *tool.tool.name <= *after));
        let rest = self.tools.get(from..).unwrap_or_default();
        let page: Vec<Tool> = rest.iter().take(PAGE).map(|tool| tool.tool.clone()).collect();
        let more = (rest.len() > PAGE).then(|| page.last().map(|last| last.name.to_string())).flatten();
        (page, more)
    }

    /// What each tool is, by name: what pins hold.
    pub(super) fn hashes(&self) -> BTreeMap<String, Digest> {
        self.tools.iter().map(|tool| (tool.tool.name.to_string(), tool.pin)).collect()
    }

    /// Whether agents would see the same.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        let same = |(one, other): (&Named, &Named)| one.pin == other.pin && one.runs.is_same(&other.runs);
        self.tools.len() == other.tools.len() && self.tools.iter().zip(&other.tools).all(same)
    }
}

/// The tool of an action, if it is offered. One that does not fit what is installed is withheld with the reason.
async fn action(
    host: &Host,
    offer: &Offer,
    action: Result<Arc<Action>, HostError>,
) -> Result<Option<Unnamed>, HostError> {
    let action = action?;
    let connector =
        |required: &Requirement| ConnectorRef::new(required.connector().clone(), required.version().clone());
    if !action.requires().iter().all(|required| offer.admits(&connector(required))) {
        return Ok(None);
    }
    host.check_action(action).await.map(|runnable| Some(Unnamed::action(runnable)))
}

/// The operations that are offered. A connector that a call would refuse has none, and is withheld with the reason.
fn operations(host: &Host, offer: &Offer, withheld: &mut Vec<Withheld>) -> Result<Vec<Unnamed>, HostError> {
    let mut tools = Vec::new();
    let mut seen = Vec::new();
    for entry in host.list()? {
        let connector = ConnectorRef::new(entry.name, entry.version);
        if !offer.selects_of(&connector) || !offer.admits(&connector) {
            continue;
        }
        let package = match host.package(&connector) {
            Ok(package) => package,
            Err(error) => {
                withheld.push(Withheld::new(connector.to_string(), error.to_string()));
                seen.push((connector, Vec::new()));
                continue;
            }
        };
        let mut ops = Vec::new();
        for operation in package.operations() {
            let op = operation.name().json();
            ops.push(op.to_owned());
            if let Some(name) = offer.selects(&connector, op) {
                tools.push(Unnamed::operation(&package, &connector, operation).under(name));
            }
        }
        seen.push((connector, ops));
    }
    for nothing in offer.selecting_nothing(&seen) {
        // A connector that cannot be read has said so.
        if !seen
            .iter()
            .any(|(connector, ops)| ops.is_empty() && nothing.contains(&connector.name().to_string()))
        {
            withheld.push(Withheld::new(nothing, "nothing that is installed has this name"));
        }
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::sync::Arc;

    use super::{Catalog, ConnectorRef, Digest, Named, Tool};
    use crate::mcp::tool::Runs;

    #[test]
    fn ten_thousand_tools_come_page_by_page_each_once() {
        let connector = ConnectorRef::parse("github://acme/many@1.0.0").unwrap();
        let named = |at: usize| {
            let op = format!("op_{at:05}");
            let tool = Tool::new(op.clone(), "", Arc::new(serde_json::Map::new()));
            Named { tool, runs: Runs::Operation { connector: connector.clone(), op }, pin: Digest::of(&[]) }
        };
        let all = Catalog { tools: (0..10_000).map(named).collect(), ..Catalog::default() };
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let (page, next) = all.page(after.as_deref());
            assert!(page.len() <= 1_000);
            seen.extend(page.into_iter().map(|tool| tool.name.to_string()));
            let Some(next) = next else { break };
            after = Some(next);
        }
        assert_eq!(seen.len(), 10_000);
        assert!(seen.is_sorted(), "each once, in order");
        assert_eq!(all.page(Some("zzz")).0, [], "what is behind the last is empty, and no error");
        assert_eq!(all.page(Some("op_09998\u{7f}")).0.len(), 1, "a cursor may name what is gone");
    }
}
