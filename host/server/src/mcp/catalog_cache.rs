//! A cache of the sources of tools: unchanged files are not read again.
//!
//! Ten thousand actions are seconds of work, and they change one at a time. The result for a file is valid as
//! long as the file, the index and the keyring are unchanged, each checked by one `stat`. A file that changed
//! so shortly before its `stat` that a later change might not show is read again, and so is every file with
//! an error.

use std::collections::HashMap;
use std::sync::Arc;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_model::action::{Action, ConnectorRequirement};
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{Host, RevisionGround};

use super::catalog::WithheldItem;
use super::selection::ToolFilter;
use super::selection::{self, AmbiguousSelector, InstalledOperations, ToolSelection};
use super::tool::ToolDraft;

/// The number of actions after which the task yields the thread.
const TURN: usize = 32;

/// The cached results.
#[derive(Default)]
pub(super) struct CatalogCache {
    selection: ToolSelection,
    /// True if it was read before: then an ambiguous selector is withheld instead of an error.
    was_read: bool,
    ground: Option<RevisionGround>,
    operations: Option<(Vec<Arc<ToolDraft>>, Vec<WithheldItem>)>,
    actions: HashMap<String, CachedActionTool>,
}

/// The result for an action's file: its tool, if it is offered.
struct CachedActionTool {
    stamp: FileFingerprint,
    tool: Option<Arc<ToolDraft>>,
}

/// The tools that can be offered, before names and pins.
#[derive(Default)]
pub(super) struct DiscoveredTools {
    pub(super) tools: Vec<Arc<ToolDraft>>,
    pub(super) withheld: Vec<WithheldItem>,
    /// The items that the operator's filters leave out, for listings.
    pub(super) left_out: Vec<WithheldItem>,
}

/// An action that has to be checked: its file, as far as it is readable, and the file's fingerprint.
struct UncheckedAction {
    name: String,
    stamp: Option<FileFingerprint>,
    action: Result<Arc<Action>, HostError>,
}

impl CatalogCache {
    /// Reads the installed operations and actions that `offer` selects. Verifies every package that it reads,
    /// as a call would, and checks every action.
    ///
    /// # Errors
    /// The index, or the directory of actions, cannot be read; or, the first time, a selector of the offer is
    /// ambiguous.
    pub(super) async fn read(
        &mut self,
        host: &Host,
        offer: &Arc<ToolFilter>,
    ) -> Result<DiscoveredTools, HostError> {
        // Taken before the files are read: a concurrent change differs from it the next time.
        let ground = host.revision_ground();
        let before = std::mem::take(self);
        (self.selection, self.was_read) = (before.selection.clone(), before.was_read);
        let mut known = match before.ground.as_ref() == Some(&ground) {
            true => before,
            false => Self { selection: before.selection, was_read: before.was_read, ..Self::default() },
        };
        let (reading, wanted) = (host.clone(), Arc::clone(offer));
        let read = tokio::task::spawn_blocking(move || {
            let mut found = DiscoveredTools::default();
            match &known.operations {
                Some((tools, left_out)) => {
                    found.tools.clone_from(tools);
                    found.left_out.clone_from(left_out);
                }
                None => {
                    let ambiguous = known.operations(&reading, &wanted, &mut found)?;
                    match ambiguous.into_iter().next() {
                        Some(first) if !known.was_read => return Err(first.into_error()),
                        _ => known.was_read = true,
                    }
                    let whole = found.withheld.is_empty();
                    known.operations = whole.then(|| (found.tools.clone(), found.left_out.clone()));
                }
            }
            let unchecked = known.reuse_actions(&reading, &mut found)?;
            Ok::<_, HostError>((known, found, unchecked))
        });
        let lost = |error| {
            HostError::new(HostErrorKind::Internal, "The tools could not be read.").with_source(error)
        };
        let (mut known, mut found, unchecked) = read.await.map_err(lost)??;
        (self.selection, self.was_read) = (known.selection.clone(), known.was_read);
        for (at, UncheckedAction { name, stamp, action }) in unchecked.into_iter().enumerate() {
            if at % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            match tool(host, offer, &known.selection, action).await {
                Ok(tool) => {
                    found.add(&name, tool.clone());
                    if let Some(stamp) = stamp {
                        known.actions.insert(name, CachedActionTool { stamp, tool });
                    }
                }
                Err(error) => found.withheld.push(WithheldItem::new(name, error.message())),
            }
        }
        if ground.is_stable() {
            known.ground = Some(ground);
            *self = known;
        }
        Ok(found)
    }

    /// Adds the tools of unchanged actions; returns the others, parsed and unchecked. Drops removed actions.
    fn reuse_actions(
        &mut self,
        host: &Host,
        found: &mut DiscoveredTools,
    ) -> Result<Vec<UncheckedAction>, HostError> {
        let stamps: HashMap<_, _> = host.installed_revision().actions.into_iter().collect();
        let mut before = std::mem::take(&mut self.actions);
        let mut unchecked = Vec::new();
        for name in host.action_names()? {
            let stamp = stamps.get(&format!("{name}.md")).filter(|stamp| stamp.is_stable()).copied();
            match before.remove(&name) {
                Some(shelved) if Some(shelved.stamp) == stamp => {
                    found.add(&name, shelved.tool.clone());
                    self.actions.insert(name, shelved);
                }
                _ => {
                    let action = host.action(&name);
                    unchecked.push(UncheckedAction { name, stamp, action });
                }
            }
        }
        Ok(unchecked)
    }

    /// Finds the operations that are offered: those of active versions, and those of versions that a selector names. A
    /// connector that a call would refuse has none, and is withheld with the reason. Returns the ambiguous selectors of the
    /// offer; nothing is offered for them.
    fn operations(
        &mut self,
        host: &Host,
        offer: &ToolFilter,
        found: &mut DiscoveredTools,
    ) -> Result<Vec<AmbiguousSelector>, HostError> {
        let every = offer.is_every_operation();
        let mut packages = Vec::new();
        let mut installed: Vec<InstalledOperations> = Vec::new();
        for entry in host.list()? {
            let connector = ConnectorRef::new(entry.name, entry.version);
            if !entry.is_active
                && !offer
                    .selectors()
                    .chain(offer.only_texts())
                    .any(|text| selection::names_version(text, &connector))
            {
                continue;
            }
            let mut ops = Some(Vec::new());
            if every || offer.selectors().any(|text| selection::may_mean(text, &connector)) {
                let package = host.package(&connector).map_err(|error| error.to_string());
                ops = package.as_ref().ok().map(|package| {
                    package.operations().iter().map(|operation| operation.name().json().to_owned()).collect()
                });
                packages.push((connector.clone(), entry.is_active, package));
            }
            installed.push((connector, ops));
        }
        let ambiguous = self.selection.resolve(offer, &installed);
        for one in &ambiguous {
            found.withheld.push(WithheldItem::new(&one.text, one.why()));
        }
        for (connector, is_active, package) in packages {
            if !self.selection.admits(offer, &connector) {
                found.left_out.push(WithheldItem::new(connector.to_string(), "left out by --only"));
                continue;
            }
            let package = match package {
                Ok(package) => package,
                Err(why) => {
                    found.withheld.push(WithheldItem::new(connector.to_string(), why));
                    continue;
                }
            };
            for operation in package.operations() {
                if let Some(name) =
                    self.selection.selects(offer, (&connector, is_active), operation.name().json())
                {
                    let tool = ToolDraft::operation(&package, &connector, operation).with_chosen_name(name);
                    found.tools.push(Arc::new(tool.with_text_values(offer.sends_text())));
                }
            }
        }
        for (nothing, why) in self.selection.unmatched_selectors(offer) {
            // An unreadable connector is reported elsewhere, and so is an ambiguous selector.
            let unread = |(connector, ops): &InstalledOperations| {
                ops.is_none() && selection::may_mean(nothing, connector)
            };
            if !installed.iter().any(unread) && !ambiguous.iter().any(|one| one.text == nothing) {
                found.withheld.push(WithheldItem::new(nothing, why));
            }
        }
        Ok(ambiguous)
    }
}

impl DiscoveredTools {
    /// Stores the tool of an action, or that it has none.
    fn add(&mut self, action: &str, tool: Option<Arc<ToolDraft>>) {
        match tool {
            Some(tool) => self.tools.push(tool),
            None => {
                let why = "left out by --only: it uses another connector";
                self.left_out.push(WithheldItem::new(action, why));
            }
        }
    }
}

/// Returns the tool of an action, if it is offered. An action that does not fit the installed connectors is
/// withheld with the reason.
async fn tool(
    host: &Host,
    offer: &ToolFilter,
    selection: &ToolSelection,
    action: Result<Arc<Action>, HostError>,
) -> Result<Option<Arc<ToolDraft>>, HostError> {
    let action = action?;
    let connector = |required: &ConnectorRequirement| {
        ConnectorRef::new(required.connector().clone(), required.version().clone())
    };
    if !action.requires().iter().all(|required| selection.admits(offer, &connector(required))) {
        return Ok(None);
    }
    host.check_action(action)
        .await
        .map(|runnable| Some(Arc::new(ToolDraft::action(runnable).with_text_values(offer.sends_text()))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::{Arc, CatalogCache, DiscoveredTools, Host, ToolFilter};
    use cofferdam_sandbox::Compiler;

    fn write(home: &std::path::Path, name: &str, description: &str) {
        let hash = "0".repeat(64);
        let text = format!(
            "+++\nname = \"{name}\"\nversion = \"1.0.0\"\n\n[[requires.connectors]]\nname = \"github://acme/x\"\n\
             version = \"1.0.0\"\nhash = \"sha256:{hash}\"\ncapabilities = {{ operations = [\"y\"] }}\n\n\
             [[execute]]\nid = \"one\"\nconnector = \"github://acme/x\"\nop = \"y\"\n+++\n{description}\n"
        );
        let path = home.join(format!("actions/{name}.md"));
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    async fn settled() {
        tokio::time::sleep(Duration::from_millis(150)).await;
    }

    #[tokio::test]
    async fn unchanged_files_are_not_read_again() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("actions")).unwrap();
        fs::set_permissions(home.path().join("actions"), Permissions::from_mode(0o700)).unwrap();
        let host = Host::builder().home(home.path()).compiler(Compiler::in_process()).build().unwrap();
        // None of them is offered: that result is cached like a tool, and needs no connector.
        let offer = Arc::new(ToolFilter::new().only("github://acme/other"));
        for name in ["a", "b", "c"] {
            write(home.path(), name, "Does.");
        }
        let to_read = |known: &mut CatalogCache| {
            let unchecked = known.reuse_actions(&host, &mut DiscoveredTools::default()).unwrap();
            unchecked.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        let mut known = CatalogCache::default();
        assert_eq!(to_read(&mut known), ["a", "b", "c"]);
        settled().await;
        let found = known.read(&host, &offer).await.unwrap();
        assert!(found.tools.is_empty() && found.withheld.is_empty());
        let left_out: Vec<_> = found.left_out.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(left_out, ["a", "b", "c"], "what a filter leaves out can be seen");
        let again = known.read(&host, &offer).await.unwrap();
        assert_eq!(again.left_out.len(), 3, "also of what is not read again");
        assert_eq!(to_read(&mut known), [""; 0]);
        write(home.path(), "b", "Does it.");
        settled().await;
        assert_eq!(to_read(&mut known), ["b"]);
        known.read(&host, &offer).await.unwrap();
        assert_eq!(to_read(&mut known), [""; 0]);
        fs::remove_file(home.path().join("actions/a.md")).unwrap();
        known.read(&host, &offer).await.unwrap();
        assert_eq!(known.actions.len(), 2, "what is gone is forgotten");
        // The trusted keys have changed: no cached result is valid any more.
        fs::write(home.path().join("keyring.toml"), "version = 1\n").unwrap();
        settled().await;
        let mut found = known.read(&host, &Arc::new(ToolFilter::new())).await.unwrap();
        found.withheld.sort();
        let withheld: Vec<_> = found.withheld.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(withheld, ["b", "c"], "the connector is not there");
        assert_eq!(to_read(&mut known), ["b", "c"], "what was wrong is read again");
    }
}
