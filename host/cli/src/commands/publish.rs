//! `publish`: pushes a package and its signature to an OCI registry.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_distribution::{ComponentInterface, PackageRef, Publication, Published, RegistryRef};
use cofferdam_model::package::Package;
use cofferdam_model::trust::Envelope;
use serde::Serialize;

use super::packaging;
use crate::layout::{Page, TextStyle};
use crate::package_source::SourceOptions;
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, progress, runtime};

const EXAMPLES: &str = "\
The package becomes a Wasm OCI artifact whose one layer is the file as it is, and the signature an artifact that refers to \
it. Publishing the same package again changes nothing. Log in with `docker login` or another tool that writes \
~/.docker/config.json.

Examples:
  cofferdam publish slack-1.2.0.wasm oci://ghcr.io/acme/slack:1.2.0
  cofferdam publish slack-1.2.0.wasm oci://registry.corp:5000/acme/slack:1.2.0 --ca-file corp.pem \
--allow-private registry.corp:5000";

/// Publishes a package and its signature on an OCI registry.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The package.
    #[arg(value_name = "PACKAGE")]
    package: PathBuf,

    /// The place on the registry: oci://HOST/REPOSITORY:TAG. Use the connector's version as the tag.
    #[arg(value_name = "REFERENCE")]
    reference: RegistryRef,

    /// The signature [default: <PACKAGE>.dsse.json].
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,

    /// Publishes a package that has no signature.
    #[arg(long)]
    allow_unsigned: bool,

    /// Moves the tag if it leads to another package.
    #[arg(long)]
    move_tag: bool,

    #[command(flatten)]
    source: SourceOptions,
}

/// The published package.
#[derive(Debug, Serialize)]
struct PublishedPackage {
    connector: String,
    hash: String,
    /// The reference that gets exactly this package.
    reference: String,
    /// True if the tag led to this package before.
    already_published: bool,
    /// True if this signature was attached before.
    already_signed: bool,
    /// The manifest that the tag led to before, if it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_from: Option<String>,
}

/// Checks the package and its signature, and pushes them.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { package, reference, signature, allow_unsigned, move_tag, source } = args;
    let read = source.load(session, &PackageRef::File(package.clone()), signature.as_deref())?;
    let opened = session.parser()?.open_blocking(read.bytes)?;
    let shown = files::shown(&package);
    match &read.signature {
        Some(envelope) => check_signature(&opened, envelope)?,
        None if allow_unsigned => {}
        None => {
            let message = format!("{shown} has no signature; no other machine would install it.");
            let hint = format!("Sign it with `cofferdam sign {shown}`, or pass --allow-unsigned.");
            return Err(HostError::new(HostErrorKind::Validation, message).with_hint(hint).into());
        }
    }
    let (name, version) = (opened.manifest().name().clone(), opened.manifest().version().clone());
    if reference.tag().is_some_and(|tag| tag != version.to_string()) {
        session
            .ui
            .warn(&format!("the tag is not the version, which is {version}: tools look for versions by tag"));
    }
    let client = source.client(session)?;
    let what = format!("publishing {shown} to {reference}");
    let publication = publication(&opened, read.signature);
    let published = runtime::block_on(async {
        let publish = client.publish(&reference, publication, move_tag);
        Ok(progress::during(session.ui, &what, publish).await?)
    })?;
    let Published { pinned, digest, already_published, already_signed, moved_from } = published;
    let published = PublishedPackage {
        connector: format!("{name}@{version}"),
        hash: format!("sha256:{digest}"),
        reference: pinned.to_string(),
        already_published,
        already_signed,
        moved_from: moved_from.map(|digest| format!("sha256:{digest}")),
    };
    session.ui.result(&published, |it| published.page(it))
}

/// Checks that the signature is about this package. Whether others trust its key is for them.
fn check_signature(package: &Package, envelope: &[u8]) -> Result<(), HostError> {
    let wrong = |reason: &str| {
        HostError::new(HostErrorKind::Validation, format!("The signature cannot be published: {reason}."))
            .with_hint("Sign the package again with `cofferdam sign --replace`.")
    };
    let statement = Envelope::parse(envelope).and_then(|envelope| envelope.unverified_statement());
    let statement = statement.map_err(|error| wrong(&error.to_string()))?;
    let (name, version) = (package.manifest().name(), package.manifest().version());
    if (statement.name(), statement.version(), statement.digest()) != (name, version, package.digest()) {
        let about = format!("{}@{}", statement.name(), statement.version());
        return Err(wrong(&format!("it is about {about}, sha256:{}", statement.digest())));
    }
    Ok(())
}

fn publication(package: &Package, signature: Option<Vec<u8>>) -> Publication {
    let manifest = package.manifest();
    let name = |key: &str| format!("org.opencontainers.image.{key}");
    let mut annotations = BTreeMap::from([
        (name("title"), manifest.name().to_string()),
        (name("version"), manifest.version().to_string()),
    ]);
    if let Some(description) = manifest.description() {
        annotations.insert(name("description"), description.to_owned());
    }
    let operations = package.operations().iter();
    let exports: BTreeSet<_> = operations
        .map(|operation| operation.interface().unwrap_or_else(|| operation.name().wit()).to_owned())
        .collect();
    let interface = ComponentInterface {
        imports: package.imports().iter().map(|import| import.name().to_owned()).collect(),
        exports: exports.into_iter().collect(),
    };
    let file_name = packaging::file_name(manifest.name(), manifest.version());
    Publication { package: package.bytes().to_vec(), file_name, signature, interface, annotations }
}

impl PublishedPackage {
    fn page(&self, page: &mut Page) {
        let did = match (self.already_published, self.already_signed) {
            (true, true) => "was there",
            (true, false) => "signed",
            (false, _) => "published",
        };
        page.styled_field(did, TextStyle::Good, &self.connector);
        page.field("hash", &self.hash);
        page.field("reference", &self.reference);
        if let Some(before) = &self.moved_from {
            page.styled_field("moved from", TextStyle::Doubtful, before);
        }
    }
}
