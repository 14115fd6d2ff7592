//! The tools as they are now: read anew when what is installed or trusted changes, and whoever waits is told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::error::HostError;
use cofferdam_core::stamp::FileStamp;
use cofferdam_runtime::host::{Host, Installation};
use tokio::sync::{Mutex, watch};

use super::catalog::{Catalog, Withheld};
use super::given_names::GivenNames;
use super::offer::Offer;
use super::pins::Pins;
use super::reading::{Found, Known};

/// How often files are looked at. It costs a `stat` each, on a thread that serves nobody.
const INTERVAL: Duration = Duration::from_secs(1);

/// The tools as they are now.
#[derive(Clone)]
pub struct Offered {
    now: watch::Sender<Arc<Catalog>>,
    host: Host,
    offer: Arc<Offer>,
    pins: Pins,
    known: Arc<Mutex<Known>>,
    names: Arc<Mutex<GivenNames>>,
}

/// What the tools are made from, as far as a `stat` tells.
#[derive(PartialEq)]
struct Made {
    /// None only where a thread was lost.
    installation: Option<Installation>,
    pins: Option<FileStamp>,
}

impl Offered {
    /// Reads the tools; [`follow`](Self::follow) keeps them as they are on disk.
    ///
    /// # Errors
    /// The index or the pins cannot be read.
    pub async fn read(
        host: Host,
        offer: Offer,
        pins: Pins,
        mut names: GivenNames,
    ) -> Result<Self, HostError> {
        let offer = Arc::new(offer);
        let mut known = Known::default();
        let found = known.read(&host, &offer).await?;
        let catalog = named(found, &offer, &pins, &mut names, &Catalog::default());
        announce(&[], catalog.withheld());
        let known = Arc::new(Mutex::new(known));
        let names = Arc::new(Mutex::new(names));
        Ok(Self { now: watch::Sender::new(Arc::new(catalog)), host, offer, pins, known, names })
    }

    /// The tools.
    #[must_use]
    pub fn now(&self) -> Arc<Catalog> {
        Arc::clone(&self.now.borrow())
    }

    /// Returns whether values are sent as text alone.
    pub(super) fn sends_text(&self) -> bool {
        self.offer.sends_text()
    }

    /// Whoever waits for a change.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<Catalog>> {
        self.now.subscribe()
    }

    /// Reads the tools anew whenever what they are made from changes, until it is dropped. What cannot be read leaves
    /// them as they are, and is said once.
    pub async fn follow(&self) {
        let mut pins = self.pins.clone();
        let mut made = self.made().await;
        // Files that changed while they were read may have changed again within one tick of their clock.
        let mut again = true;
        let mut said: Option<String> = None;
        loop {
            tokio::time::sleep(INTERVAL).await;
            let is = self.made().await;
            if is == made && !again {
                continue;
            }
            again = is != made;
            let pins_changed = is.pins != made.pins;
            made = is;
            let read = match pins_changed.then(|| Pins::load(pins.path())).transpose() {
                // Pins that are gone hold until the server starts again.
                Ok(Some(new)) if new.count().is_some() => {
                    pins = new;
                    self.read_anew(&pins).await
                }
                Ok(_) => self.read_anew(&pins).await,
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

    /// The tools anew, as far as what they are made from changed.
    async fn read_anew(&self, pins: &Pins) -> Result<Catalog, HostError> {
        let found = self.known.lock().await.read(&self.host, &self.offer).await?;
        let mut names = self.names.lock().await;
        Ok(named(found, &self.offer, pins, &mut names, &self.now()))
    }

    async fn made(&self) -> Made {
        let pins = std::fs::metadata(self.pins.path()).ok().map(|metadata| FileStamp::from(&metadata));
        let host = self.host.clone();
        let installation = tokio::task::spawn_blocking(move || host.installation()).await.ok();
        Made { installation, pins }
    }
}

/// Names what was found, and keeps the names. Names that cannot be kept hold until the server ends.
fn named(found: Found, offer: &Offer, pins: &Pins, names: &mut GivenNames, before: &Catalog) -> Catalog {
    let lock = names.lock();
    let catalog = Catalog::of(found, offer, pins, names, before);
    let is_new = catalog.give(names);
    let kept = lock.and_then(|lock| if is_new { names.save(&lock) } else { Ok(()) });
    if let Err(error) = kept {
        tracing::warn!(target: "cofferdam::mcp", %error, "the names of tools are not kept");
    }
    catalog
}

/// Tells the operator what is not offered, once.
fn announce(before: &[Withheld], now: &[Withheld]) {
    let before: BTreeSet<_> = before.iter().collect();
    for Withheld { name, why } in now.iter().filter(|one| !before.contains(one)) {
        tracing::warn!(target: "cofferdam::mcp", tool = name, why, "not offered");
    }
}
