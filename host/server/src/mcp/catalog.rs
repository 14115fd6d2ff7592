//! The tools there are at one moment: read from what is installed and verified, named, and held against the pins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_runtime::host::Host;
use rmcp::model::Tool;

use super::given_names::GivenNames;
use super::names;
use super::offer::Offer;
use super::pins::{Pins, Said};
use super::reading::{Found, Known};
use super::tool::{Named, Unnamed};

/// Tools in one answer to `tools/list` at most; there is a cursor to the others.
const PAGE: usize = 1_000;

/// Bytes of JSON in one such answer: clients bound what they read. One tool there is in any.
const PAGE_BYTES: usize = 1024 * 1024;

/// The tools, by name.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    tools: Vec<Arc<Named>>,
    by_name: HashMap<String, usize>,
    withheld: Vec<Withheld>,
    left_out: Vec<Withheld>,
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
    pub(super) fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), why: why.into() }
    }
}

impl Catalog {
    /// Reads what `offer` offers of what is installed. Verifies every package that it reads, as a call would, and
    /// checks every action.
    ///
    /// # Errors
    /// The index, or the directory of actions, cannot be read.
    pub async fn read(
        host: &Host,
        offer: &Arc<Offer>,
        pins: &Pins,
        names: &GivenNames,
    ) -> Result<Self, HostError> {
        let found = Known::default().read(host, offer).await?;
        Ok(Self::of(found, offer, pins, names, &Self::default()))
    }

    /// Names what was found, and holds it against the pins. Tools that were there `before` are taken as they are.
    pub(super) fn of(found: Found, offer: &Offer, pins: &Pins, given: &GivenNames, before: &Self) -> Self {
        let Found { tools: mut found, mut withheld, mut left_out } = found;
        if offer.is_read_only() {
            found.retain(|tool| {
                if !tool.is_read_only() {
                    let why = format!("left out by --read-only: {} may change something", tool.runs.shown());
                    left_out.push(Withheld::new(&tool.wanted.base, why));
                }
                tool.is_read_only()
            });
        }
        let names = names::assigned(&found.iter().map(|tool| &tool.wanted).collect::<Vec<_>>(), given);
        let mut tools = Vec::with_capacity(found.len());
        let mut count: HashMap<&str, usize> = HashMap::new();
        for name in &names {
            *count.entry(name).or_default() += 1;
        }
        for (tool, name) in found.iter().zip(&names) {
            // Of two that have one name, an agent would call the one and mean the other.
            if count.get(name.as_str()).is_some_and(|count| *count > 1) {
                let why = format!("{} and another tool come to the same name", tool.runs.shown());
                withheld.push(Withheld::new(name, why));
                continue;
            }
            let tool = before.same(tool, name).unwrap_or_else(|| Arc::new(Named::new(tool, name.clone())));
            let name = tool.tool.name.to_string();
            match pins.say(&name, &tool.pin) {
                Said::Fine => tools.push(tool),
                Said::Changed => {
                    let why =
                        format!("{} is not what was pinned: read it and pin it anew", tool.runs().shown());
                    withheld.push(Withheld::new(name, why));
                }
                Said::New => {
                    let why = format!("{} is not pinned: read it and pin it", tool.runs().shown());
                    withheld.push(Withheld::new(name, why));
                }
            }
        }
        tools.sort_by(|one, other| one.tool.name.cmp(&other.tool.name));
        withheld.sort();
        left_out.sort();
        let by_name = tools.iter().enumerate().map(|(at, tool)| (tool.tool.name.to_string(), at)).collect();
        Self { tools, by_name, withheld, left_out }
    }

    /// The tool of this name, if it was made of the very same.
    fn same(&self, of: &Arc<Unnamed>, name: &str) -> Option<Arc<Named>> {
        self.named(name).filter(|named| Arc::ptr_eq(&named.of, of)).cloned()
    }

    /// What was asked for and is not offered.
    #[must_use]
    pub fn withheld(&self) -> &[Withheld] {
        &self.withheld
    }

    /// What the operator's filters leave out.
    pub(super) fn left_out(&self) -> &[Withheld] {
        &self.left_out
    }

    pub(super) fn tools(&self) -> &[Arc<Named>] {
        &self.tools
    }

    pub(super) fn get(&self, name: &str) -> Option<&Named> {
        self.named(name).map(AsRef::as_ref)
    }

    fn named(&self, name: &str) -> Option<&Arc<Named>> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// The tools after the one that is called `after`, as many as an answer has, and after which of them there are more.
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

    /// Notes under which names the tools are offered. A name with a mark no other tool can want.
    pub(super) fn give(&self, names: &mut GivenNames) -> bool {
        let plain = self.tools.iter().filter(|tool| *tool.tool.name == *tool.of.wanted.base);
        names.give(plain.map(|tool| (&*tool.tool.name, &tool.of.wanted)))
    }

    /// What each tool is, by name: what pins hold.
    pub(super) fn hashes(&self) -> BTreeMap<String, Digest> {
        self.tools.iter().map(|tool| (tool.tool.name.to_string(), tool.pin)).collect()
    }

    /// Whether agents would see the same.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<Named>, &Arc<Named>)| one.is_same(other);
        self.tools.len() == other.tools.len() && self.tools.iter().zip(&other.tools).all(same)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
    use std::sync::Arc;

    use super::{Catalog, Found, GivenNames, Named, Offer, PAGE_BYTES, Pins, Unnamed};

    fn catalog(count: usize, description: &str) -> Catalog {
        let tool = |at: usize| Arc::new(Unnamed::for_test(&format!("op_{at:05}"), description));
        let found = Found { tools: (0..count).map(tool).collect(), ..Found::default() };
        Catalog::of(found, &Offer::new(), &Pins::none(""), &GivenNames::default(), &Catalog::default())
    }

    /// The lengths of the pages, and all names in the order in which they came.
    fn pages(all: &Catalog) -> (Vec<usize>, Vec<String>) {
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
    fn ten_thousand_tools_come_page_by_page_each_once() {
        let all = catalog(10_000, "");
        let (lengths, seen) = pages(&all);
        assert_eq!((lengths, seen.len()), (vec![1_000; 10], 10_000));
        assert!(seen.is_sorted_by(|one, other| one < other), "each once, in order");
        assert_eq!(all.page(Some("zzz")), (vec![], None), "what is behind the last is empty, and no error");
        assert_eq!(all.page(Some("op_09998\u{7f}")).0.len(), 1, "a cursor may name what is gone");
    }

    #[test]
    fn a_page_is_no_longer_than_a_client_reads() {
        let (lengths, seen) = pages(&catalog(300, &"x".repeat(10_000)));
        assert_eq!((lengths.iter().sum::<usize>(), seen.len()), (300, 300));
        assert!(lengths.iter().all(|length| *length < 110) && lengths.len() < 5, "{lengths:?}");
        let (lengths, _) = pages(&catalog(3, &"x".repeat(2 * PAGE_BYTES)));
        assert_eq!(lengths, [1, 1, 1], "one there is in any");
        assert_eq!(pages(&Catalog::default()), (vec![0], vec![]));
    }

    #[test]
    fn what_was_there_is_not_made_again() {
        let tool = |name: &str| Arc::new(Unnamed::for_test(name, ""));
        let (one, two) = (tool("one"), tool("two"));
        let of = |tools: &[&Arc<Unnamed>], before: &Catalog| {
            let tools = tools.iter().map(|tool| Arc::clone(tool)).collect();
            Catalog::of(
                Found { tools, ..Found::default() },
                &Offer::new(),
                &Pins::none(""),
                &GivenNames::default(),
                before,
            )
        };
        let before = of(&[&one, &two], &Catalog::default());
        let after = of(&[&one, &tool("two")], &before);
        let same = |at: usize| Arc::ptr_eq(before.tools.get(at).unwrap(), after.tools.get(at).unwrap());
        assert!(same(0) && !same(1));
        assert!(before.offers_the_same(&after));
        // A name that another wants as well is nobody's.
        let clash = of(&[&one, &two, &tool("ONE")], &before);
        assert!(
            clash.get("one").is_none()
                && clash.tools.iter().all(|named: &Arc<Named>| *named.tool.name != *"one")
        );
    }

    #[test]
    fn attack_155_of_tools_that_have_one_name_none_is_offered_and_all_are_shown() {
        // The very same twice: what no mark tells apart.
        let tool = |name: &str| Arc::new(Unnamed::for_test(name, ""));
        let found = Found { tools: vec![tool("one"), tool("two"), tool("one")], ..Found::default() };
        let all =
            Catalog::of(found, &Offer::new(), &Pins::none(""), &GivenNames::default(), &Catalog::default());
        let offered: Vec<_> = all.tools.iter().map(|named| &*named.tool.name).collect();
        assert_eq!((offered, all.withheld().len()), (vec!["two"], 2));
        let [first, second] = all.withheld() else { panic!("{:?}", all.withheld()) };
        assert!(
            first.name == second.name && first.name.starts_with("one_") && first.why.contains("same name")
        );
        assert!(all.get(&first.name).is_none() && all.get("one").is_none());
    }
}
