//! The tools at one moment: read from the installed and verified packages and actions, named, and compared
//! with the pins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_runtime::host::Host;
use rmcp::model::Tool;

use super::catalog_cache::{CatalogCache, DiscoveredTools};
use super::pins::{PinStatus, ToolPins};
use super::selection::ToolFilter;
use super::tool::{CatalogTool, ToolDraft};
use super::tool_names;
use super::tool_names::GivenNames;

/// The most tools in one answer to `tools/list`; a cursor leads to the others.
const PAGE: usize = 1_000;

/// The most bytes of JSON in one such answer: clients bound their input. Every answer has at least one tool.
const PAGE_BYTES: usize = 1024 * 1024;

/// The tools, by name.
#[derive(Debug, Clone, Default)]
pub struct ToolCatalog {
    tools: Vec<Arc<CatalogTool>>,
    by_name: HashMap<String, usize>,
    withheld: Vec<WithheldItem>,
    left_out: Vec<WithheldItem>,
}

/// A requested item that is not offered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WithheldItem {
    /// The tool's name, or a substitute for a connector without one.
    pub name: String,
    /// The reason, in a sentence for the operator.
    pub why: String,
}

impl WithheldItem {
    pub(super) fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), why: why.into() }
    }
}

impl ToolCatalog {
    /// Reads the installed operations and actions that `offer` selects. Verifies every package that it reads,
    /// as a call would, and checks every action.
    ///
    /// # Errors
    /// The index, or the directory of actions, cannot be read.
    pub async fn read(
        host: &Host,
        offer: &Arc<ToolFilter>,
        pins: &ToolPins,
        names: &GivenNames,
    ) -> Result<Self, HostError> {
        let found = CatalogCache::default().read(host, offer).await?;
        Ok(Self::build(found, offer, pins, names, &Self::default()))
    }

    /// Names the discovered tools, and compares them with the pins. Unchanged tools are taken from `before`.
    pub(super) fn build(
        found: DiscoveredTools,
        offer: &ToolFilter,
        pins: &ToolPins,
        given: &GivenNames,
        before: &Self,
    ) -> Self {
        let DiscoveredTools { tools: mut found, mut withheld, mut left_out } = found;
        if offer.is_read_only() {
            found.retain(|tool| {
                if !tool.is_read_only() {
                    let why =
                        format!("left out by --read-only: {} may change something", tool.runs.describe());
                    left_out.push(WithheldItem::new(&tool.wanted.base, why));
                }
                tool.is_read_only()
            });
        }
        let names = tool_names::assign(&found.iter().map(|tool| &tool.wanted).collect::<Vec<_>>(), given);
        let mut tools = Vec::with_capacity(found.len());
        let mut count: HashMap<&str, usize> = HashMap::new();
        for name in &names {
            *count.entry(name).or_default() += 1;
        }
        for (tool, name) in found.iter().zip(&names) {
            // With two tools of one name, an agent would call one and mean the other.
            if count.get(name.as_str()).is_some_and(|count| *count > 1) {
                let why = format!("{} and another tool come to the same name", tool.runs.describe());
                withheld.push(WithheldItem::new(name, why));
                continue;
            }
            let tool =
                before.reuse(tool, name).unwrap_or_else(|| Arc::new(CatalogTool::new(tool, name.clone())));
            let name = tool.tool.name.to_string();
            match pins.status(&name, &tool.pin) {
                PinStatus::Unchanged => tools.push(tool),
                PinStatus::Changed => {
                    let why =
                        format!("{} is not what was pinned: read it and pin it anew", tool.runs().describe());
                    withheld.push(WithheldItem::new(name, why));
                }
                PinStatus::New => {
                    let why = format!("{} is not pinned: read it and pin it", tool.runs().describe());
                    withheld.push(WithheldItem::new(name, why));
                }
            }
        }
        tools.sort_by(|one, other| one.tool.name.cmp(&other.tool.name));
        withheld.sort();
        left_out.sort();
        let by_name = tools.iter().enumerate().map(|(at, tool)| (tool.tool.name.to_string(), at)).collect();
        Self { tools, by_name, withheld, left_out }
    }

    /// Returns the tool of this name, if it was built from the same draft.
    fn reuse(&self, of: &Arc<ToolDraft>, name: &str) -> Option<Arc<CatalogTool>> {
        self.named(name).filter(|named| Arc::ptr_eq(&named.draft, of)).cloned()
    }

    /// Returns the requested items that are not offered.
    #[must_use]
    pub fn withheld(&self) -> &[WithheldItem] {
        &self.withheld
    }

    /// Returns the items that the operator's filters leave out.
    pub(super) fn left_out(&self) -> &[WithheldItem] {
        &self.left_out
    }

    pub(super) fn tools(&self) -> &[Arc<CatalogTool>] {
        &self.tools
    }

    pub(super) fn get(&self, name: &str) -> Option<&CatalogTool> {
        self.named(name).map(AsRef::as_ref)
    }

    fn named(&self, name: &str) -> Option<&Arc<CatalogTool>> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// Returns the page of tools after the tool `after`, and the last tool of the page if more follow.
    pub(super) fn page(&self, after: Option<&str>) -> (Vec<Tool>, Option<&str>) {
        let from = after.map_or(0, |after| self.tools.partition_point(|tool| *tool.tool.name <= *after));
        let rest = self.tools.get(from..).unwrap_or_default();
        let mut bytes = 0;
        let page: Vec<_> = rest
            .iter()
            .take(PAGE)
            .take_while(|tool| {
                let first = bytes == 0;
                bytes += tool.bytes;
                first || bytes <= PAGE_BYTES
            })
            .collect();
        let more = if page.len() < rest.len() { page.last().map(|last| &*last.tool.name) } else { None };
        (page.iter().map(|named| named.tool.clone()).collect(), more)
    }

    /// Records the names under which the tools are offered. No other tool can get a name with a mark.
    pub(super) fn assign_names(&self, names: &mut GivenNames) -> bool {
        let plain = self.tools.iter().filter(|tool| *tool.tool.name == *tool.draft.wanted.base);
        names.give(plain.map(|tool| (&*tool.tool.name, &tool.draft.wanted)))
    }

    /// Returns the hash of each tool by name, as pins store it.
    pub(super) fn hashes(&self) -> BTreeMap<String, Digest> {
        self.tools.iter().map(|tool| (tool.tool.name.to_string(), tool.pin)).collect()
    }

    /// Returns true if agents would see the same tools.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<CatalogTool>, &Arc<CatalogTool>)| one.is_same(other);
        self.tools.len() == other.tools.len() && self.tools.iter().zip(&other.tools).all(same)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
    use std::sync::Arc;

    use super::{
        CatalogTool, DiscoveredTools, GivenNames, PAGE_BYTES, ToolCatalog, ToolDraft, ToolFilter, ToolPins,
    };

    fn catalog(count: usize, description: &str) -> ToolCatalog {
        let tool = |at: usize| Arc::new(ToolDraft::for_test(&format!("op_{at:05}"), description));
        let found = DiscoveredTools { tools: (0..count).map(tool).collect(), ..DiscoveredTools::default() };
        ToolCatalog::build(
            found,
            &ToolFilter::new(),
            &ToolPins::none(""),
            &GivenNames::default(),
            &ToolCatalog::default(),
        )
    }

    /// Returns the lengths of the pages, and all names in their order.
    fn pages(all: &ToolCatalog) -> (Vec<usize>, Vec<String>) {
        let (mut lengths, mut seen, mut after) = (Vec::new(), Vec::<String>::new(), None);
        loop {
            let (page, next) = all.page(after);
            assert!(
                page.len() == 1 || serde_json::to_vec(&page).unwrap().len() <= PAGE_BYTES + page.len() + 1
            );
            lengths.push(page.len());
            seen.extend(page.into_iter().map(|tool| tool.name.to_string()));
            after = next;
            if after.is_none() {
                return (lengths, seen);
            }
        }
    }

    #[test]
    fn ten_thousand_tools_are_paged_each_once() {
        let all = catalog(10_000, "");
        let (lengths, seen) = pages(&all);
        assert_eq!((lengths, seen.len()), (vec![1_000; 10], 10_000));
        assert!(seen.is_sorted_by(|one, other| one < other), "each once, in order");
        assert_eq!(all.page(Some("zzz")), (vec![], None), "what is behind the last is empty, and no error");
        assert_eq!(all.page(Some("op_09998\u{7f}")).0.len(), 1, "a cursor may name what is gone");
    }

    #[test]
    fn a_page_has_a_bounded_size() {
        let (lengths, seen) = pages(&catalog(300, &"x".repeat(10_000)));
        assert_eq!((lengths.iter().sum::<usize>(), seen.len()), (300, 300));
        assert!(lengths.iter().all(|length| *length < 110) && lengths.len() < 5, "{lengths:?}");
        let (lengths, _) = pages(&catalog(3, &"x".repeat(2 * PAGE_BYTES)));
        assert_eq!(lengths, [1, 1, 1], "one there is in any");
        assert_eq!(pages(&ToolCatalog::default()), (vec![0], vec![]));
    }

    #[test]
    fn unchanged_tools_are_reused() {
        let tool = |name: &str| Arc::new(ToolDraft::for_test(name, ""));
        let (one, two) = (tool("one"), tool("two"));
        let of = |tools: &[&Arc<ToolDraft>], before: &ToolCatalog| {
            let tools = tools.iter().map(|tool| Arc::clone(tool)).collect();
            ToolCatalog::build(
                DiscoveredTools { tools, ..DiscoveredTools::default() },
                &ToolFilter::new(),
                &ToolPins::none(""),
                &GivenNames::default(),
                before,
            )
        };
        let before = of(&[&one, &two], &ToolCatalog::default());
        let after = of(&[&one, &tool("two")], &before);
        let same = |at: usize| Arc::ptr_eq(before.tools.get(at).unwrap(), after.tools.get(at).unwrap());
        assert!(same(0) && !same(1));
        assert!(before.offers_the_same(&after));
        // A name that two tools want is given to neither.
        let clash = of(&[&one, &two, &tool("ONE")], &before);
        assert!(
            clash.get("one").is_none()
                && clash.tools.iter().all(|named: &Arc<CatalogTool>| *named.tool.name != *"one")
        );
    }

    #[test]
    fn tools_with_one_name_are_withheld_and_listed() {
        // Two identical tools, which no mark distinguishes.
        let tool = |name: &str| Arc::new(ToolDraft::for_test(name, ""));
        let found = DiscoveredTools {
            tools: vec![tool("one"), tool("two"), tool("one")],
            ..DiscoveredTools::default()
        };
        let all = ToolCatalog::build(
            found,
            &ToolFilter::new(),
            &ToolPins::none(""),
            &GivenNames::default(),
            &ToolCatalog::default(),
        );
        let offered: Vec<_> = all.tools.iter().map(|named| &*named.tool.name).collect();
        assert_eq!((offered, all.withheld().len()), (vec!["two"], 2));
        let [first, second] = all.withheld() else { panic!("{:?}", all.withheld()) };
        assert!(
            first.name == second.name && first.name.starts_with("one_") && first.why.contains("same name")
        );
        assert!(all.get(&first.name).is_none() && all.get("one").is_none());
    }
}
