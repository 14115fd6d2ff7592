//! `trust publish`: publishes this home's keyring for all hosts of a cluster.

use std::path::{Path, PathBuf};

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_distribution::RegistryRef;
use cofferdam_model::trust::{KeyId, PublicKey, TRUST_BUNDLE_BYTES, TrustBundle};
use jiff::Timestamp;
use serde::Serialize;

use super::refusal;
use crate::commands::key;
use crate::layout::TextStyle;
use crate::package_source::{self, SourceOptions};
use crate::report::CommandError;
use crate::session::Session;
use crate::{author_key, files, runtime};

const EXAMPLES: &str = "\
Hosts whose config.toml has the reference as `[cluster] trust`, and the public key among its \
`trust_keys`, take the keyring over within seconds: what is revoked in it stops there. Each \
publication has a higher version than the one before; hosts refuse an older one.

Examples:
  cofferdam trust publish oci://registry.example/acme/trust:stable --key trust.key
  cofferdam trust publish oci://registry.example/acme/trust:stable --key trust.key --lock connectors.lock";

/// Publishes the keyring of this home, and a lock file, as the trust of a cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The reference, with a tag, which is moved.
    #[arg(value_name = "REFERENCE")]
    reference: String,

    /// The key file, which only its owner may be able to read [default: the author's key, made by `cofferdam new`].
    #[arg(short, long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// A lock file with the chosen packages, which hosts keep in `trust/connectors.lock` of their homes.
    #[arg(long, value_name = "FILE")]
    lock: Option<PathBuf>,

    /// The version [default: the one after that of the registry]. Needed once, if what the registry has is not signed with
    /// this key.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    version: Option<u64>,

    #[command(flatten)]
    registry: SourceOptions,
}

/// The published trust.
#[derive(Debug, Serialize)]
struct PublishedTrust {
    reference: String,
    version: u64,
    fingerprint: String,
    key: PublicKey,
    key_id: KeyId,
    keys: usize,
}

/// Publishes.
pub(super) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { reference, key, lock, version, registry } = args;
    let reference: RegistryRef = package_source::parse(&reference)?;
    let signer = match key {
        Some(file) => key::read(&file)?,
        None => author_key::load()?.key,
    };
    let keyring = session.keyring()?.load()?;
    let lock = lock.as_deref().map(read_lock).transpose()?;
    let client = registry.client(session)?;
    let published = runtime::block_on(async {
        let invalid = |refused| refusal(&refused, HostErrorKind::Validation);
        let there = client.find_trust(&reference).await?;
        let there = there.map(|there| TrustBundle::parse(&there.bundle, &[signer.public()]));
        let version = match (there, version) {
            (Some(Ok(there)), Some(version)) if version <= there.version() => {
                let message = format!("The registry has version {} already.", there.version());
                let hint = "Hosts refuse an older version, and another one with the same number: leave --version out.";
                return Err(HostError::new(HostErrorKind::Conflict, message).with_hint(hint).into());
            }
            (_, Some(version)) => version,
            (Some(there), None) => there.map_err(invalid)?.version().saturating_add(1),
            (None, None) => 1,
        };
        let bundle = TrustBundle::write(version, Timestamp::now(), &keyring, lock.as_deref(), &signer);
        let bundle = bundle.map_err(invalid)?;
        let fingerprint = cofferdam_core::digest::Digest::sha256(bundle.as_bytes());
        client.publish_trust(&reference, bundle.into_bytes()).await?;
        Ok(PublishedTrust {
            reference: reference.to_string(),
            version,
            fingerprint: format!("sha256:{fingerprint}"),
            key: signer.public(),
            key_id: signer.public().id(),
            keys: keyring.entries().len(),
        })
    })?;
    session.ui.result(&published, |page| {
        page.styled_field("published", TextStyle::Good, &published.reference);
        page.field("version", &published.version.to_string());
        page.field("keys", &published.keys.to_string());
        page.field("signed with", &published.key.to_string());
    })?;
    Ok(())
}

fn read_lock(path: &Path) -> Result<String, HostError> {
    let bytes = files::bounded("The lock file", path, TRUST_BUNDLE_BYTES as u64)?;
    String::from_utf8(bytes).map_err(|_| {
        HostError::new(HostErrorKind::Validation, format!("{} is not UTF-8 text.", files::shown(path)))
            .with_hint("Name a connectors.lock that `cofferdam sync` wrote.")
    })
}
