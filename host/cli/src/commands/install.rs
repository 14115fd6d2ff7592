//! `install`: verifies a package and puts it among the connectors that can be called.

use std::path::PathBuf;

use cofferdam_core::digest::Digest;
use cofferdam_runtime::host::{
    ChangeSeverity, InstallOptions, Installed, PackageDifference, PackageInspection,
};

use crate::commands::diff;
use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::session::{Session, signature_path};
use crate::{files, progress, runtime};

const EXAMPLES: &str = "\
Everything is checked before anything is written: the hash, the signature by a key that is trusted for this \
name, the manifest, the imports, the limits, and that it compiles. `cofferdam inspect PACKAGE` shows what a \
package is and asks for, without installing it. `cofferdam rollback NAME` returns to the version that was active \
before.

Examples:
  cofferdam install slack-1.2.0.wasm
  cofferdam install slack-1.2.0.wasm --hash sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  cofferdam install target/cofferdam/hello-0.1.0.wasm --allow-unsigned";

/// Verifies a package and installs it, as the active version of its name.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The package.
    #[arg(value_name = "PACKAGE")]
    package: PathBuf,

    /// The signature [default: <PACKAGE>.dsse.json, if it is there].
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,

    /// Refuses the package unless this is its SHA-256.
    #[arg(long, value_name = "SHA256", value_parser = digest)]
    hash: Option<Digest>,

    /// For development: takes a package that has no signature. Each call has to allow it again, and a
    /// signature that is there and does not hold is refused all the same.
    #[arg(long)]
    allow_unsigned: bool,

    /// Takes a version that is older than one that is installed or was. It goes below no floor of the keyring.
    #[arg(long)]
    allow_downgrade: bool,
}

pub(super) fn digest(text: &str) -> Result<Digest, String> {
    Digest::parse(text).ok_or_else(|| "write it as sha256: and 64 lower-case hexadecimal digits".to_owned())
}

/// Shows what is about to be trusted, verifies, installs.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { package, signature, hash, allow_unsigned, allow_downgrade } = args;
    let bytes = files::read_package(&package)?;
    let signature = match signature {
        Some(path) => Some(files::read_signature(&path)?),
        None => files::read_if_there("The signature file", &signature_path(&package))?,
    };
    let host = session.host()?;
    if session.ui.shows_notes() {
        let inspection = host.inspect_package(bytes.clone(), signature.as_deref())?;
        let active = host.resolve(&inspection.name).ok().map(|active| host.inspect_unchanged(&active));
        if let Some(Err(error)) = &active {
            session.ui.warn(&format!("the active version cannot be compared with the new one: {error}"));
        }
        announce(session, &inspection, active.and_then(Result::ok).as_ref());
    }
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
    let what = format!("verifying and compiling {}", files::shown(&package));
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

/// Prints the package that is about to be trusted.
fn announce(session: &Session<'_>, inspection: &PackageInspection, active: Option<&PackageInspection>) {
    let signer = match (&inspection.signature.signer, inspection.signature.status.as_str()) {
        (Some(signer), status) => format!("{status}, by the key {signer}"),
        (None, status) => status.to_owned(),
    };
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let ui = session.ui;
    ui.note(&format!("installing {}@{}", inspection.name, inspection.version));
    if let Some(active) = active.filter(|active| active.version != inspection.version) {
        ui.note(&format!("  version      {} -> {}", active.version, inspection.version));
    }
    ui.note(&format!("  hash         {}", inspection.hash));
    ui.note(&format!("  signature    {signer}"));
    ui.note(&format!("  network      {}", list(&inspection.network)));
    let credentials: Vec<_> = inspection.credentials.iter().map(ToString::to_string).collect();
    ui.note(&format!("  credentials  {}", list(&credentials)));
    for credential in &inspection.credentials {
        for host in credential.hosts.iter().filter(|host| host.starts_with("http://")) {
            let label = format!("{}/{}", credential.kind, credential.service);
            ui.note(&format!("  warning: {label} goes to {host} unencrypted: who is on the way can read it"));
        }
    }
    let changes =
        active.map(|active| PackageDifference::between(active, inspection).changes).unwrap_or_default();
    for change in changes.iter().filter(|change| change.severity != ChangeSeverity::Note) {
        ui.note(&format!("  {:<12} {}", change.severity.name(), diff::sentence(change)));
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
    page.field("signer", installed.signer.as_deref().unwrap_or("none"));
}
