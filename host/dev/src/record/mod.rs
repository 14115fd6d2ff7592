//! Records a scenario from real services.
//!
//! The connector runs as in a test, and its services are relays on the loopback interface: each reads the request that
//! left the host, sends it on through the host's own checked way out, and keeps both sides. Only then the recording is
//! cleaned of secrets and written down.

mod relay;
mod scenario_text;
mod scrub;

use std::path::PathBuf;
use std::sync::Arc;

use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_egress::egress::{PrivateGrant, RootCertificates, SystemResolver, Tls, roots_from_pem};
use cofferdam_egress::vault::{Vault, scanner_for};
use cofferdam_runtime::call::{Call, CallResult};
use serde_json::{Map, Value};

use crate::network::LocalNetwork;
use crate::runner::TestRunner;

use relay::RecordingRelay;

pub use scenario_text::RecordedScenario;

/// The calls that are recorded, with their credentials and network.
pub struct Recording {
    /// The scenario's name.
    pub name: String,
    /// The file's name without its ending, for the files of bodies.
    pub stem: String,
    /// The calls: operation and arguments.
    pub calls: Vec<(String, Map<String, Value>)>,
    /// The credentials.
    pub vault: Arc<dyn Vault>,
    /// The network.
    pub network: RealNetwork,
}

/// The operator's network settings.
#[derive(Debug, Clone, Default)]
pub struct RealNetwork {
    /// The trusted certificate authorities.
    pub roots: RootCertificates,
    /// Further ones, as PEM.
    pub extra_roots: Vec<Vec<u8>>,
    /// The services that may have a private address.
    pub allow_private: Vec<String>,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A call and what came of it.
struct RecordedCall {
    operation: String,
    args: Map<String, Value>,
    key: String,
    outcome: Result<Value, Error>,
    attempts: usize,
}

impl TestRunner {
    /// Makes the calls of `recording` with the real services, and returns a scenario of them. Nothing is written.
    ///
    /// # Errors
    /// A service could not be reached, an exchange has no form in a scenario, or a bound secret would be in it.
    pub async fn record(&self, recording: Recording) -> Result<RecordedScenario, HostError> {
        let Recording { name, stem, calls, vault, network: real } = recording;
        let manifest = self.tested().manifest();
        let relay = RecordingRelay::start(self.authority(), manifest, tls(&real)?, private(&real)?).await?;
        let mut network = LocalNetwork::with_authority(Arc::clone(self.authority()))
            .with_others(Arc::new(SystemResolver::default()));
        self.route_all(&mut network, relay.address())?;
        let mut builder = network.apply_to(self.builder()).roots(real.roots).vault(Arc::clone(&vault));
        for pem in real.extra_roots {
            builder = builder.extra_root_pem(pem);
        }
        let host = builder.concurrency(1).build()?;
        let mut recorded = Vec::new();
        for (operation, args) in calls {
            let call = Call::new(self.connector().clone(), &operation, Value::Object(args.clone()));
            let CallResult { outcome, report } = host.run(call).await;
            if let Err(Error::Host(error)) = outcome {
                return Err(error);
            }
            let key = report.idempotency_key.as_deref().unwrap_or_default().to_owned();
            let attempts = report.attempts.len();
            recorded.push(RecordedCall { operation, args, key, outcome, attempts });
        }
        host.flush().await;
        let exchanges = relay.finish()?;
        // The tokens that were renewed meanwhile are secrets, too.
        let bindings = vault.bindings().map_err(|error| {
            HostError::new(HostErrorKind::VaultUnusable, "The vault cannot be read.")
                .with_source(error.to_string())
        })?;
        let scanner = scanner_for(bindings.iter());
        scenario_text::compose(&name, &stem, manifest, &exchanges, &recorded, &scanner)
    }
}

fn tls(real: &RealNetwork) -> Result<Arc<Tls>, HostError> {
    let roots = real.extra_roots.iter().map(|pem| roots_from_pem(pem)).collect::<Result<Vec<_>, _>>();
    let tls = roots.and_then(|roots| Tls::new(real.roots, roots.into_iter().flatten()));
    tls.map_err(|error| wrong("An extra root cannot be used.", &error))
}

fn private(real: &RealNetwork) -> Result<Vec<PrivateGrant>, HostError> {
    let grants = real.allow_private.iter().map(|text| PrivateGrant::parse(text));
    grants.collect::<Result<_, _>>().map_err(|error| wrong("allow_private cannot be used.", &error))
}

fn wrong(message: &str, error: &impl std::fmt::Display) -> HostError {
    HostError::new(HostErrorKind::Configuration, message)
        .with_hint("Correct config.toml of the home.")
        .with_source(error.to_string())
}

/// A file that belongs to a recording.
#[derive(Debug, Clone)]
pub struct RecordedFile {
    /// Its name, beside the scenario file.
    pub name: PathBuf,
    /// Its content.
    pub bytes: Vec<u8>,
}
