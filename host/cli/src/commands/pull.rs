//! `pull`: downloads a package and its signature into a directory, and verifies them.

use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failpoint;
use cofferdam_distribution::RemoteRef;
use serde::Serialize;

use super::packaging;
use crate::layout::Page;
use crate::package_source::SourceOptions;
use crate::report::CommandError;
use crate::session::{Session, signature_path};
use crate::{files, runtime};

const EXAMPLES: &str = "\
Hash, signature and manifest are checked as by an install, before anything is written. Nothing is installed, compiled or \
run.

Examples:
  cofferdam pull oci://ghcr.io/acme/slack:1.2.0
  cofferdam pull oci://ghcr.io/acme/slack:1.2.0 -o vendor
  cofferdam pull https://downloads.example.com/slack-1.2.0.wasm";

/// Downloads a package and its signature from a registry or web server, and verifies them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The package: oci://HOST/REPOSITORY:TAG, oci://HOST/REPOSITORY@sha256:DIGEST, or https://HOST/PATH.
    #[arg(value_name = "REFERENCE")]
    reference: RemoteRef,

    /// The directory for the package and its signature.
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    output: PathBuf,

    /// Refuses the package unless this is its SHA-256.
    #[arg(long, value_name = "SHA256", value_parser = super::install::digest)]
    hash: Option<Digest>,

    /// For development: takes a package that has no signature. A signature that is there and does not hold is refused
    /// all the same.
    #[arg(long)]
    allow_unsigned: bool,

    #[command(flatten)]
    source: SourceOptions,
}

/// The files.
#[derive(Debug, Serialize)]
struct PulledPackage {
    path: PathBuf,
    /// None for an unsigned package.
    signature: Option<PathBuf>,
    name: String,
    version: String,
    hash: String,
    signer: Option<String>,
    /// The reference for the next time: that of a registry gets the same bytes or nothing, that of a web server what is
    /// there then.
    reference: String,
}

/// Downloads a package and its signature, verifies them, and writes them to the directory.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { reference, output, hash, allow_unsigned, source } = args;
    if !output.is_dir() {
        let message = format!("There is no directory {}.", files::shown(&output));
        return Err(HostError::new(HostErrorKind::OutputUnwritable, message)
            .with_hint("Make it, or name another one with --output.")
            .into());
    }
    let host = session.host()?;
    let fetched = source.fetch(session, &reference)?;
    let signature = fetched.signature.as_deref();
    let verifying = host.verify_package(fetched.bytes.clone(), signature, hash, allow_unsigned);
    let inspection = runtime::block_on(async { Ok(verifying.await?) })?;
    let path = output.join(packaging::file_name(&inspection.name, &inspection.version));
    let beside = signature_path(&path);
    if path.exists() && files::read_package(&path)? != fetched.bytes {
        return Err(taken(&path, "package").into());
    }
    if let Some(signature) = signature
        && files::read_if_there("The signature file", &beside)?.is_some_and(|there| there != signature)
    {
        return Err(taken(&beside, "signature").into());
    }
    // The signature first: a package that is there has its signature.
    if let Some(signature) = signature {
        files::write_whole(&beside, signature)?;
    }
    failpoint::pass("pull.signed");
    files::write_whole(&path, &fetched.bytes)?;
    if inspection.signature.signer.is_none() {
        session.ui.warn("it is unsigned: an install and every call of it need --allow-unsigned");
    }
    let pulled = PulledPackage {
        signature: signature.map(|_| beside),
        path,
        name: inspection.name,
        version: inspection.version,
        hash: inspection.hash,
        signer: inspection.signature.signer,
        reference: fetched.pinned.to_string(),
    };
    session.ui.result(&pulled, |it| pulled.page(it))
}

/// Returns the error for a file that is there already, with other bytes. A package of this name and version, and its
/// signature, are not replaced.
fn taken(path: &Path, kind: &str) -> HostError {
    let message = format!("{} is there already, and is another {kind}.", files::shown(path));
    HostError::new(HostErrorKind::Conflict, message)
        .with_hint("Remove it, or name another directory with --output.")
}

impl PulledPackage {
    fn page(&self, page: &mut Page) {
        page.field("package", &files::shown(&self.path));
        page.field("connector", &format!("{}@{}", self.name, self.version));
        page.field("hash", &self.hash);
        page.field("signer", self.signer.as_deref().unwrap_or("none"));
        page.field("reference", &self.reference);
    }
}
