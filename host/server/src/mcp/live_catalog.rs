//! The current tools: read again when installed or trusted things change, with notification of the waiting
//! tasks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::HostError;
use cofferdam_core::file_fingerprint::FileFingerprint;
use cofferdam_runtime::host::{Host, InstalledRevision};
use tokio::sync::{Mutex, watch};

use super::catalog::{ToolCatalog, WithheldItem};
use super::catalog_cache::{CatalogCache, DiscoveredTools};
use super::pins::ToolPins;
use super::selection::ToolFilter;
use super::tool_names::GivenNames;

/// The interval between two checks of the files. A check costs a `stat` each, on a thread that serves no
/// requests.
const INTERVAL: Duration = Duration::from_secs(1);

/// The current tools.
#[derive(Clone)]
pub struct LiveCatalog {
    now: watch::Sender<Arc<ToolCatalog>>,
    host: Host,
    offer: Arc<ToolFilter>,
    pins: ToolPins,
    known: Arc<Mutex<CatalogCache>>,
    names: Arc<Mutex<GivenNames>>,
}

/// The sources of the tools, as far as a `stat` shows.
#[derive(PartialEq)]
struct CatalogSources {
    /// None only if a thread was lost.
    installation: Option<InstalledRevision>,
    pins: Option<FileFingerprint>,
}

impl LiveCatalog {
    /// Reads the tools; [`follow`](Self::follow) updates them when files change.
    ///
    /// # Errors
    /// The index or the pins cannot be read.
    pub async fn read(
        host: Host,
        offer: ToolFilter,
        pins: ToolPins,
        mut names: GivenNames,
    ) -> Result<Self, HostError> {
        let offer = Arc::new(offer);
        let mut known = CatalogCache::default();
        let found = known.read(&host, &offer).await?;
        let catalog = name_tools(found, &offer, &pins, &mut names, &ToolCatalog::default());
        announce(&[], catalog.withheld());
        let known = Arc::new(Mutex::new(known));
        let names = Arc::new(Mutex::new(names));
        Ok(Self { now: watch::Sender::new(Arc::new(catalog)), host, offer, pins, known, names })
    }

    /// The tools.
    #[must_use]
    pub fn now(&self) -> Arc<ToolCatalog> {
        Arc::clone(&self.now.borrow())
    }

    /// Returns true if values are sent as text alone.
    pub(super) fn sends_text(&self) -> bool {
        self.offer.sends_text()
    }

    /// Returns a receiver of changes.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<ToolCatalog>> {
        self.now.subscribe()
    }

    /// Reads the tools again whenever their sources change, until it is dropped. After a read error the tools
    /// stay unchanged, and the error is logged once.
    pub async fn follow(&self) {
        let mut pins = self.pins.clone();
        let mut made = self.sources().await;
        // Files that changed while they were read may have changed again within one tick of their clock.
        let mut again = true;
        let mut said: Option<String> = None;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let is = self.sources().await;
            if is == made && !again {
                continue;
            }
            again = is != made;
            let pins_changed = is.pins != made.pins;
            made = is;
            let read = match pins_changed.then(|| ToolPins::load(pins.path())).transpose() {
                // If the pins are deleted, the old ones are valid until the server restarts.
                Ok(Some(new)) if new.count().is_some() => {
                    pins = new;
                    self.reload(&pins).await
                }
                Ok(_) => self.reload(&pins).await,
                Err(error) => Err(error),
            };
            match read {
                Ok(catalog) => {
                    said = None;
                    let before = self.now();
                    announce(before.withheld(), catalog.withheld());
                    let same = before.offers_the_same(&catalog);
                    self.now.send_if_modified(|now| {
                        *now = Arc::new(catalog);
                        !same
                    });
                }
                Err(error) if said.as_deref() != Some(error.message()) => {
                    tracing::warn!(target: "cofferdam::mcp", %error, "the tools stay as they were");
                    said = Some(error.message().to_owned());
                }
                Err(_) => {}
            }
        }
    }

    /// Reads the tools again, as far as their sources changed.
    async fn reload(&self, pins: &ToolPins) -> Result<ToolCatalog, HostError> {
        let found = self.known.lock().await.read(&self.host, &self.offer).await?;
        let mut names = self.names.lock().await;
        Ok(name_tools(found, &self.offer, pins, &mut names, &self.now()))
    }

    async fn sources(&self) -> CatalogSources {
        let pins = std::fs::metadata(self.pins.path()).ok().map(|metadata| FileFingerprint::from(&metadata));
        let host = self.host.clone();
        let installation = tokio::task::spawn_blocking(move || host.installed_revision()).await.ok();
        CatalogSources { installation, pins }
    }
}

/// Names the discovered tools, and stores the names. Names that cannot be stored are valid until the server
/// ends.
fn name_tools(
    found: DiscoveredTools,
    offer: &ToolFilter,
    pins: &ToolPins,
    names: &mut GivenNames,
    before: &ToolCatalog,
) -> ToolCatalog {
    let lock = names.lock();
    let catalog = ToolCatalog::build(found, offer, pins, names, before);
    let is_new = catalog.assign_names(names);
    let kept = lock.and_then(|lock| if is_new { names.save(&lock) } else { Ok(()) });
    if let Err(error) = kept {
        tracing::warn!(target: "cofferdam::mcp", %error, "the names of tools are not kept");
    }
    catalog
}

/// Logs the items that are not offered, once each.
fn announce(before: &[WithheldItem], now: &[WithheldItem]) {
    let before: BTreeSet<_> = before.iter().collect();
    for WithheldItem { name, why } in now.iter().filter(|one| !before.contains(one)) {
        tracing::warn!(target: "cofferdam::mcp", tool = name, why, "not offered");
    }
}
