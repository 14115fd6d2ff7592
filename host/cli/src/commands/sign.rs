//! `sign`: writes the signature of a package.

use std::path::PathBuf;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::trust::{self, Envelope, EnvelopeError, KeyId, Provenance, ReleaseStatement, SecretKey};
use jiff::Timestamp;
use serde::Serialize;

use super::{inspect, key};
use crate::layout::Page;
use crate::report::CommandError;
use crate::session::{Session, signature_path};
use crate::{author_key, files, provenance_file};

const EXAMPLES: &str = "\
The signature says: these bytes are this version of this connector. It is an in-toto statement in a DSSE \
envelope, <package>.dsse.json; give both files to those who are to install it. A second key's signature \
is added to the first, for operators who ask for several, and while keys rotate.

The statement has the provenance that `cofferdam build` wrote beside the package: repository, commit, tools and \
dependencies.

Examples:
  cofferdam sign slack-1.2.0.wasm
  cofferdam sign slack-1.2.0.wasm --key cofferdam.key
  cofferdam sign slack-1.2.0.wasm --key cofferdam.key --replace";

/// Longest file with a provenance, in bytes.
const PROVENANCE_BYTES: u64 = 1024 * 1024;

/// Signs a package.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The package.
    #[arg(value_name = "PACKAGE")]
    package: PathBuf,

    /// The key file, which only its owner may be able to read [default: the author's key, made by `cofferdam new`].
    #[arg(short, long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// The file for the signature [default: <PACKAGE>.dsse.json].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replaces the signatures that are there, as after a new build.
    #[arg(long)]
    replace: bool,

    /// The provenance of the package [default: <PACKAGE>.provenance.json, if it is there].
    #[arg(long, value_name = "FILE")]
    provenance: Option<PathBuf>,

    /// Signs without a provenance.
    #[arg(long, conflicts_with = "provenance")]
    no_provenance: bool,
}

/// The signed package.
#[derive(Debug, Serialize)]
struct SignedPackage {
    signature: PathBuf,
    connector: String,
    hash: String,
    key_id: KeyId,
    signatures: usize,
    provenance: Option<Provenance>,
}

/// Signs, and writes the envelope.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { package, key, output, replace, provenance, no_provenance } = args;
    let path = output.unwrap_or_else(|| signature_path(&package));
    let beside = provenance_file::path(&package);
    let package = session.parser()?.open_blocking(files::read_package(&package)?)?;
    let provenance = match (provenance, no_provenance) {
        (_, true) => None,
        (Some(file), _) => Some((files::bounded("The provenance", &file, PROVENANCE_BYTES)?, file)),
        (None, _) => files::read_if_there("The provenance", &beside)?.map(|bytes| (bytes, beside)),
    };
    let provenance = provenance.map(|(bytes, file)| provenance_file::parse(&file, &bytes, package.digest()));
    let provenance = provenance.transpose()?;
    let key = match key {
        Some(file) => key::read(&file)?,
        None => author_key::load()?.key,
    };
    let there = match replace {
        true => None,
        false => files::read_if_there("The signature file", &path)?,
    };
    let (name, version) = (package.manifest().name(), package.manifest().version());
    let statement = ReleaseStatement::new(name.clone(), version.clone(), *package.digest(), Timestamp::now())
        .with_provenance(provenance);
    let envelope = match there {
        None => trust::sign(&key, &statement),
        Some(bytes) => add(&bytes, &key, &statement).map_err(|reason| conflict(&path, &reason))?,
    };
    files::write_whole(&path, envelope.to_json().as_bytes())?;
    let signed = SignedPackage {
        connector: format!("{name}@{version}"),
        hash: format!("sha256:{}", package.digest()),
        key_id: key.public().id(),
        signatures: envelope.signature_count(),
        signature: path,
        provenance: envelope
            .unverified_statement()
            .ok()
            .and_then(|statement| statement.provenance().cloned()),
    };
    session.ui.result(&signed, |it| signed.page(it))
}

/// Adds the key's signature to an envelope that is about the same package.
fn add(bytes: &[u8], key: &SecretKey, statement: &ReleaseStatement) -> Result<Envelope, String> {
    let reason = |error: EnvelopeError| error.to_string();
    let mut envelope = Envelope::parse(bytes).map_err(reason)?;
    let there = envelope.unverified_statement().map_err(reason)?;
    if (there.name(), there.version()) != (statement.name(), statement.version()) {
        return Err(format!("it is about {}@{}", there.name(), there.version()));
    }
    if there.digest() != statement.digest() {
        return Err("it is about another build of this version".into());
    }
    if statement.provenance().is_some() && there.provenance() != statement.provenance() {
        return Err("its statement has another provenance, or none".into());
    }
    envelope.add(key).map_err(reason)?;
    Ok(envelope)
}

fn conflict(path: &std::path::Path, reason: &str) -> HostError {
    let message = format!("No signature can be added to {}: {reason}.", files::shown(path));
    HostError::new(HostErrorKind::Conflict, message)
        .with_hint("Pass --replace to sign again, or name another file with --output.")
}

impl SignedPackage {
    fn page(&self, page: &mut Page) {
        page.field("signature", &files::shown(&self.signature));
        page.field("connector", &self.connector);
        page.field("hash", &self.hash);
        page.field("key id", &self.key_id.to_string());
        if self.signatures > 1 {
            page.field("signatures", &self.signatures.to_string());
        }
        match &self.provenance {
            Some(provenance) => inspect::provenance(page, provenance),
            None => {
                page.field("provenance", "none");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;
    use cofferdam_core::digest::Digest;
    use cofferdam_model::manifest::ConnectorName;

    fn statement(name: &str, version: &str, bytes: &[u8]) -> ReleaseStatement {
        let name = ConnectorName::parse(name).unwrap();
        ReleaseStatement::new(name, version.parse().unwrap(), Digest::sha256(bytes), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_signature_is_added_only_for_the_same_bytes() {
        let (old, new) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let mine = statement("github://acme/slack", "1.0.0", b"a");
        let there = trust::sign(&old, &mine).to_json();
        let both = add(there.as_bytes(), &new, &mine).unwrap();
        assert_eq!(both.signature_count(), 2);
        assert_eq!(add(both.to_json().as_bytes(), &new, &mine).unwrap().signature_count(), 2);
        for (other, reason) in [
            (statement("github://acme/other", "1.0.0", b"a"), "about github://acme/slack@1.0.0"),
            (statement("github://acme/slack", "1.0.1", b"a"), "about github://acme/slack@1.0.0"),
            (statement("github://acme/slack", "1.0.0", b"b"), "another build"),
        ] {
            let error = add(there.as_bytes(), &new, &other).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(add(b"{}", &new, &mine).is_err());
    }

    #[test]
    fn a_signature_is_not_added_to_another_provenance() {
        let (old, new) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let mine = statement("github://acme/slack", "1.0.0", b"a");
        let with = |target: &str| {
            let text = format!(r#"{{"tools": [], "target": "{target}", "dependencies": []}}"#);
            mine.clone().with_provenance(Some(serde_json::from_str(&text).unwrap()))
        };
        let there = trust::sign(&old, &with("wasm32-wasip2")).to_json();
        assert!(add(there.as_bytes(), &new, &with("other")).unwrap_err().contains("another provenance"));
        assert!(add(trust::sign(&old, &mine).to_json().as_bytes(), &new, &with("other")).is_err());
        for mine in [with("wasm32-wasip2"), mine] {
            assert_eq!(add(there.as_bytes(), &new, &mine).unwrap().signature_count(), 2);
        }
    }
}
