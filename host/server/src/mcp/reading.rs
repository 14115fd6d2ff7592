//! Reading what tools are made from: what did not change since it was read is not read again.
//!
//! Ten thousand actions are seconds of work, and one of them changes at a time. What was found of a file stands as long
//! as the file, the index and the keyring do, each known by one `stat`; what changed so shortly before it was looked at
//! that a later change might not show is read again, and so is whatever was wrong.

use std::collections::HashMap;
use std::sync::Arc;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::stamp::FileStamp;
use cofferdam_model::action::{Action, Requirement};
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{Ground, Host};

use super::catalog::Withheld;
use super::offer::Offer;
use super::selection::{self, Ambiguity, Installed, Selection};
use super::tool::Unnamed;

/// After how many actions others have their turn on this thread.
const TURN: usize = 32;

/// What was found, as long as it stands.
#[derive(Default)]
pub(super) struct Known {
    selection: Selection,
    /// True if it was read before: then a word with several meanings is withheld, and no error.
    was_read: bool,
    ground: Option<Ground>,
    operations: Option<(Vec<Arc<Unnamed>>, Vec<Withheld>)>,
    actions: HashMap<String, Shelved>,
}

/// What was found of an action's file: its tool, if it is offered.
struct Shelved {
    stamp: FileStamp,
    tool: Option<Arc<Unnamed>>,
}

/// What there is to offer, before names and pins.
#[derive(Default)]
pub(super) struct Found {
    pub(super) tools: Vec<Arc<Unnamed>>,
    pub(super) withheld: Vec<Withheld>,
    /// What the operator's filters leave out, for whoever looks.
    pub(super) left_out: Vec<Withheld>,
}

/// An action that has to be checked: as far as its file can be read, and how the file is to be known again.
struct Unchecked {
    name: String,
    stamp: Option<FileStamp>,
    action: Result<Arc<Action>, HostError>,
}

impl Known {
    /// Reads what `offer` offers of what is installed. Verifies every package that it reads, as a call would, and
    /// checks every action.
    ///
    /// # Errors
    /// The index, or the directory of actions, cannot be read; or, the first time, a word of the offer means more than
    /// one thing.
    pub(super) async fn read(&mut self, host: &Host, offer: &Arc<Offer>) -> Result<Found, HostError> {
        // How things look before they are read: what changes meanwhile looks different the next time.
        let ground = host.ground();
        let before = std::mem::take(self);
        (self.selection, self.was_read) = (before.selection.clone(), before.was_read);
        let mut known = match before.ground.as_ref() == Some(&ground) {
            true => before,
            false => Self { selection: before.selection, was_read: before.was_read, ..Self::default() },
        };
        let (reading, wanted) = (host.clone(), Arc::clone(offer));
        let read = tokio::task::spawn_blocking(move || {
            let mut found = Found::default();
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
            let unchecked = known.shelved(&reading, &mut found)?;
            Ok::<_, HostError>((known, found, unchecked))
        });
        let lost =
            |error| HostError::new(HostErrorKind::Internal, "The tools could not be read.").because(error);
        let (mut known, mut found, unchecked) = read.await.map_err(lost)??;
        (self.selection, self.was_read) = (known.selection.clone(), known.was_read);
        for (at, Unchecked { name, stamp, action }) in unchecked.into_iter().enumerate() {
            if at % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
            match tool(host, offer, &known.selection, action).await {
                Ok(tool) => {
                    found.add(&name, tool.clone());
                    if let Some(stamp) = stamp {
                        known.actions.insert(name, Shelved { stamp, tool });
                    }
                }
                Err(error) => found.withheld.push(Withheld::new(name, error.message())),
            }
        }
        if ground.is_settled() {
            known.ground = Some(ground);
            *self = known;
        }
        Ok(found)
    }

    /// Adds the tools of the actions that are as they were; the others, read. Forgets those that are gone.
    fn shelved(&mut self, host: &Host, found: &mut Found) -> Result<Vec<Unchecked>, HostError> {
        let stamps: HashMap<_, _> = host.installation().actions.into_iter().collect();
        let mut before = std::mem::take(&mut self.actions);
        let mut unchecked = Vec::new();
        for name in host.action_names()? {
            let stamp = stamps.get(&format!("{name}.md")).filter(|stamp| stamp.is_settled()).copied();
            match before.remove(&name) {
                Some(shelved) if Some(shelved.stamp) == stamp => {
                    found.add(&name, shelved.tool.clone());
                    self.actions.insert(name, shelved);
                }
                _ => {
                    let action = host.action(&name);
                    unchecked.push(Unchecked { name, stamp, action });
                }
            }
        }
        Ok(unchecked)
    }

    /// Finds the operations that are offered. A connector that a call would refuse has none, and is withheld with the
    /// reason. Returns the words of the offer that have several meanings; nothing is offered for them.
    fn operations(
        &mut self,
        host: &Host,
        offer: &Offer,
        found: &mut Found,
    ) -> Result<Vec<Ambiguity>, HostError> {
        let every = offer.is_every_operation();
        let mut packages = Vec::new();
        let mut installed: Vec<Installed> = Vec::new();
        for entry in host.list()? {
            let connector = ConnectorRef::new(entry.name, entry.version);
            let mut ops = Some(Vec::new());
            if every || offer.selectors().any(|text| selection::is_of(text, &connector)) {
                let package = host.package(&connector).map_err(|error| error.to_string());
                ops = package.as_ref().ok().map(|package| {
                    package.operations().iter().map(|operation| operation.name().json().to_owned()).collect()
                });
                packages.push((connector.clone(), package));
            }
            installed.push((connector, ops));
        }
        let ambiguous = self.selection.resolve(offer, &installed);
        for one in &ambiguous {
            found.withheld.push(Withheld::new(&one.text, one.why()));
        }
        for (connector, package) in packages {
            if !self.selection.admits(offer, &connector) {
                found.left_out.push(Withheld::new(connector.to_string(), "left out by --only"));
                continue;
            }
            let package = match package {
                Ok(package) => package,
                Err(why) => {
                    found.withheld.push(Withheld::new(connector.to_string(), why));
                    continue;
                }
            };
            for operation in package.operations() {
                if let Some(name) = self.selection.selects(offer, &connector, operation.name().json()) {
                    let tool = Unnamed::operation(&package, &connector, operation).under(name);
                    found.tools.push(Arc::new(tool.sending(offer.sends_text())));
                }
            }
        }
        for (nothing, why) in self.selection.selecting_nothing(offer) {
            // A connector that cannot be read says so itself, and so does a word with several meanings.
            let unread = |(connector, ops): &Installed| ops.is_none() && selection::is_of(nothing, connector);
            if !installed.iter().any(unread) && !ambiguous.iter().any(|one| one.text == nothing) {
                found.withheld.push(Withheld::new(nothing, why));
            }
        }
        Ok(ambiguous)
    }
}

impl Found {
    /// The tool of an action, or that it has none.
    fn add(&mut self, action: &str, tool: Option<Arc<Unnamed>>) {
        match tool {
            Some(tool) => self.tools.push(tool),
            None => {
                let why = "left out by --only: it uses another connector";
                self.left_out.push(Withheld::new(action, why));
            }
        }
    }
}

/// The tool of an action, if it is offered. One that does not fit what is installed is withheld with the reason.
async fn tool(
    host: &Host,
    offer: &Offer,
    selection: &Selection,
    action: Result<Arc<Action>, HostError>,
) -> Result<Option<Arc<Unnamed>>, HostError> {
    let action = action?;
    let connector =
        |required: &Requirement| ConnectorRef::new(required.connector().clone(), required.version().clone());
    if !action.requires().iter().all(|required| selection.admits(offer, &connector(required))) {
        return Ok(None);
    }
    host.check_action(action)
        .await
        .map(|runnable| Some(Arc::new(Unnamed::action(runnable).sending(offer.sends_text()))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::{Arc, Found, Host, Known, Offer};
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
    async fn what_did_not_change_is_not_read_again() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("actions")).unwrap();
        fs::set_permissions(home.path().join("actions"), Permissions::from_mode(0o700)).unwrap();
        let host = Host::builder().home(home.path()).compiler(Compiler::in_process()).build().unwrap();
        // Nothing of them is offered: that stands as well as a tool would, and wants no connector.
        let offer = Arc::new(Offer::new().only("github://acme/other"));
        for name in ["a", "b", "c"] {
            write(home.path(), name, "Does.");
        }
        let to_read = |known: &mut Known| {
            let unchecked = known.shelved(&host, &mut Found::default()).unwrap();
            unchecked.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        let mut known = Known::default();
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
        // Who is trusted has changed: nothing that was found stands any more.
        fs::write(home.path().join("keyring.toml"), "version = 1\n").unwrap();
        settled().await;
        let mut found = known.read(&host, &Arc::new(Offer::new())).await.unwrap();
        found.withheld.sort();
        let withheld: Vec<_> = found.withheld.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(withheld, ["b", "c"], "the connector is not there");
        assert_eq!(to_read(&mut known), ["b", "c"], "what was wrong is read again");
    }
}
