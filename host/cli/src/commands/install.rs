//! `install`: verifies a package and puts it among the connectors that can be called.

use std::path::PathBuf;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_distribution::PackageRef;
use cofferdam_runtime::host::{Consent, InstallOptions, Installed, PackageReview};

use super::review::ReviewPage;
use crate::layout::{Page, TextStyle};
use crate::package_source::{self, SourceOptions, SourcePackage};
use crate::report::CommandError;
use crate::session::Session;
use crate::{progress, prompt, runtime};

const EXAMPLES: &str = "\
Everything is checked before anything is written: the hash, the signature by a key that is trusted for this \
name, the manifest, the imports, the limits, and that it compiles. `cofferdam rollback NAME` returns to the version \
that was active before.

The access that the package asks for has to be accepted, unless it is no wider than that of the active version, with \
the same signer: the command shows it (as `cofferdam review PACKAGE` does) and asks. Without a terminal, --accept says \
which package is accepted.

Examples:
  cofferdam install slack-1.2.0.wasm
  cofferdam install oci://ghcr.io/acme/slack:1.2.0
  cofferdam install slack-1.2.0.wasm --accept sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  cofferdam install target/cofferdam/hello-0.1.0.wasm --allow-unsigned";

/// Verifies a package and installs it, as the active version of its name.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The package: a file, oci://HOST/REPOSITORY:TAG, oci://HOST/REPOSITORY@sha256:DIGEST, or https://HOST/PATH.
    #[arg(value_name = "PACKAGE", value_parser = package_source::package_ref())]
    package: PackageRef,

    /// The signature [default: <PACKAGE>.dsse.json, or on a registry what refers to the package; if it is there].
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,

    /// Refuses the package unless this is its SHA-256.
    #[arg(long, value_name = "SHA256", value_parser = digest)]
    hash: Option<Digest>,

    /// Accepts the access that the package with this SHA-256 asks for, and refuses any other package.
    #[arg(long, value_name = "SHA256", value_parser = digest, conflicts_with = "hash")]
    accept: Option<Digest>,

    /// For development: takes a package that has no signature. Each call has to allow it again, and a
    /// signature that is there and does not hold is refused all the same.
    #[arg(long)]
    allow_unsigned: bool,

    /// Takes a version that is older than one that is installed or was. It goes below no floor of the keyring.
    #[arg(long)]
    allow_downgrade: bool,

    #[command(flatten)]
    source: SourceOptions,
}

/// Parses the value of `--hash`.
pub(super) fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).ok_or_else(|| "write it as sha256: and 64 lower-case hexadecimal digits".to_owned())
}

/// Shows the package, asks for consent if it is needed, verifies, installs.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { package, signature, hash, accept, allow_unsigned, allow_downgrade, source } = args;
    let SourcePackage { bytes, signature, pinned } = source.load(session, &package, signature.as_deref())?;
    if let Some(pinned) = pinned {
        session.ui.note(&format!("downloaded {pinned}"));
    }
    let host = session.host()?;
    let mut options = InstallOptions::default();
    if let Some(hash) = hash {
        options = options.expect_hash(hash);
    }
    if allow_unsigned {
        options = options.allow_unsigned();
    }
    if allow_downgrade {
        options = options.allow_downgrade();
    }
    let reviewing = async { Ok(host.review(bytes.clone(), signature.as_deref()).await?) };
    let shown = ReviewPage::new(&host, runtime::block_on(reviewing)?);
    session.ui.note_page(|it| shown.show(it));
    if let Some(hash) = accept {
        options = options.accept(hash);
    } else if needs_an_answer(shown.review(), allow_unsigned) && ask(session)? {
        options = options.accept(Digest::sha256(&bytes));
    }
    let what = format!("verifying and compiling {}", package_source::shown(&package));
    let installed = runtime::block_on(async {
        Ok(progress::during(session.ui, &what, host.install(bytes, signature, options)).await?)
    })?;
    if let (true, Some(previous)) = (installed.downgrade, &installed.previous) {
        session.ui.warn(&format!("it is a downgrade, from {previous} to {}", installed.version));
    }
    if installed.signer.is_none() {
        session.ui.warn("it is unsigned: every call of it needs --allow-unsigned");
    }
    session.ui.result(&installed, |it| page(&installed, it))
}

/// Returns whether consent is needed, and nothing else refuses the package.
fn needs_an_answer(review: &PackageReview, allow_unsigned: bool) -> bool {
    let is_signed = review.package.signature.signer.is_some();
    matches!(review.consent, Consent::Required { .. }) && (is_signed || allow_unsigned)
}

/// Asks whether the package may be installed. False if there is no terminal, where the install then says how to accept.
pub(super) fn ask(session: &Session<'_>) -> Result<bool, HostError> {
    let read = |answer: &str| match answer {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        _ => Err("answer y or n".to_owned()),
    };
    match prompt::ask(session.ui, "Accept this access and install it? (y/n)", "n", read)? {
        Some(false) => Err(HostError::new(HostErrorKind::ConsentRequired, "The access was not accepted.")
            .with_hint("Nothing was installed or changed.")),
        answer => Ok(answer.unwrap_or(false)),
    }
}

fn page(installed: &Installed, page: &mut Page) {
    let did = if installed.already_installed { "was there" } else { "installed" };
    page.styled_field(did, TextStyle::Good, &format!("{}@{}", installed.name, installed.version));
    if !installed.active {
        page.field("active", "another version: `cofferdam use` makes this one active");
    }
    let previous = installed.previous.as_ref().filter(|_| !installed.already_installed);
    if let Some(before) = installed.replaces.as_ref().or(previous) {
        page.field("version", &format!("{before} -> {}", installed.version));
    }
    page.field("hash", &installed.hash);
    if installed.signers.is_empty() {
        page.field("signer", "none");
    }
    for signer in &installed.signers {
        page.field("signer", signer);
    }
}
