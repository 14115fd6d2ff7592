//! The common part of `build` and `pack`: makes a package from a component, a manifest and WIT.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use cofferdam_core::digest::Digest;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::RepeatRule;
use cofferdam_model::manifest::{ConnectorName, Manifest};
use cofferdam_model::package::{self, ConnectorDocs, Package, PackageError};
use cofferdam_model::trust::{Envelope, Provenance};
use cofferdam_runtime::host::Host;
use semver::Version;
use serde::Serialize;

use crate::layout::{self, Page};
use crate::report::CommandError;
use crate::session::{Session, signature_path};
use crate::{files, progress, provenance_file};

/// The manifest that the hint shows if there is none yet.
const MINIMAL: &str = "\
[connector]
name = \"github://OWNER/REPOSITORY\"
version = \"0.1.0\"

# Only if it talks to a server:
# [capabilities.network]
# hosts = [\"api.example.com:443\"]
# [capabilities.runtime]
# imports = [\"wasi:http/outgoing-handler\"]";

/// The result.
#[derive(Debug, Serialize)]
struct PackageSummary {
    path: PathBuf,
    name: ConnectorName,
    version: Version,
    hash: String,
    size: u64,
    operations: Vec<OperationSummary>,
    /// The names in the manifest that the component does not import.
    unused_imports: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OperationSummary {
    name: String,
    signature: String,
    documented: bool,
}

/// Reads a manifest.
pub(crate) fn read_manifest(path: &Path) -> Result<Manifest, HostError> {
    if !path.exists() {
        let message = format!("There is no manifest: {} does not exist.", files::shown(path));
        let hint = format!("Make one, with what is true of your connector:\n{MINIMAL}");
        return Err(HostError::new(HostErrorKind::InputUnreadable, message).with_hint(hint));
    }
    let text = files::read_text("The manifest", path)?;
    Manifest::parse(&files::shown(path), &text).map_err(files::document_error)
}

/// Reads WIT files, each with the name that messages call it by.
pub(crate) fn read_wit(paths: &[PathBuf]) -> Result<Vec<(String, String)>, HostError> {
    let read = |path: &PathBuf| Ok((files::shown(path), files::read_text("The WIT file", path)?));
    paths.iter().map(read).collect()
}

/// The file name of a package: `slack-1.2.0.wasm`.
pub(crate) fn file_name(name: &impl Display, version: &impl Display) -> String {
    let name = name.to_string();
    let last = name.rsplit('/').next().unwrap_or_default();
    format!("{last}-{version}.wasm")
}

/// The source of the documentation of operations.
pub(crate) enum DocsSource {
    /// WIT files, each with the name that messages call it by.
    Wit(Vec<(String, String)>),
    /// The package that it was made of.
    Kept(ConnectorDocs),
}

/// Refuses an output that cannot be written, before the work is done and not after.
pub(crate) fn check_output(output: &Path) -> Result<(), HostError> {
    match output.metadata() {
        Ok(there) if there.is_dir() => {
            return Err(files::unwritable(output, io::ErrorKind::IsADirectory.into()));
        }
        Ok(there) if !there.is_file() => {
            return Err(files::unwritable(output, io::Error::other("it is not a regular file")));
        }
        _ => {}
    }
    match files::parent(output).metadata() {
        Ok(parent) if parent.is_dir() => Ok(()),
        Ok(_) => Err(files::unwritable(output, io::ErrorKind::NotADirectory.into())),
        Err(error) => Err(files::unwritable(output, error)),
    }
}

/// Makes the package, checks it as an install would, writes it, and says what it is. Its compiled code stays in the
/// home's cache, so that an install of the same bytes does not compile again.
pub(super) async fn finish(
    session: &Session<'_>,
    component: &[u8],
    manifest: &Manifest,
    docs: DocsSource,
    output: &Path,
    provenance: Option<Provenance>,
) -> Result<(), CommandError> {
    let host = session.host()?;
    let assembling = assemble(session, &host, component, manifest, docs);
    let package = progress::during(session.ui, "checking the package (compiling it)", assembling).await?;
    let previous = std::fs::read(output).ok().map(|bytes| Digest::sha256(&bytes));
    files::write_whole(output, package.bytes())?;
    provenance_file::write(output, package.digest(), provenance.as_ref())?;
    if let Some(previous) = previous.filter(|previous| previous != package.digest()) {
        // A connector that is being written is built often. Code that stays only costs disk space.
        drop(host.discard_code(&previous));
    }
    let made = PackageSummary {
        path: output.to_owned(),
        name: manifest.name().clone(),
        version: manifest.version().clone(),
        hash: format!("sha256:{}", package.digest()),
        size: package.bytes().len() as u64,
        operations: package.operations().iter().map(|it| operation(it, package.docs())).collect(),
        unused_imports: package.unused_imports().into_iter().map(ToOwned::to_owned).collect(),
    };
    session.ui.result(&made, |it| made.page(it))?;
    advise(session, &made, &package, provenance.as_ref());
    Ok(())
}

/// Makes the package of a component, and checks it as an install into `host` would.
pub(crate) async fn assemble(
    session: &Session<'_>,
    host: &Host,
    component: &[u8],
    manifest: &Manifest,
    docs: DocsSource,
) -> Result<Package, CommandError> {
    let bytes = package_bytes(session, component, manifest, docs).await?;
    Ok(host.checked_package(bytes).await?)
}

/// Makes the package of a component, and does not check it.
pub(crate) async fn package_bytes(
    session: &Session<'_>,
    component: &[u8],
    manifest: &Manifest,
    docs: DocsSource,
) -> Result<Vec<u8>, CommandError> {
    let operations = session.parser()?.operations(component.to_vec()).await?;
    let docs = match docs {
        DocsSource::Wit(sources) if sources.is_empty() => ConnectorDocs::default(),
        DocsSource::Wit(sources) => {
            ConnectorDocs::from_wit(&sources, &operations).map_err(HostError::from)?
        }
        DocsSource::Kept(docs) => docs,
    };
    package::embed(component, manifest.text(), &docs).map_err(|error| match error {
        PackageError::SectionPresent { .. } => HostError::from(error)
            .with_hint("To give it another manifest, use `cofferdam pack --replace`.")
            .into(),
        error => HostError::from(error).into(),
    })
}

fn operation(operation: &package::OperationSignature, docs: &ConnectorDocs) -> OperationSummary {
    let name = operation.name().json();
    let documented = docs.operation(name).is_some();
    OperationSummary { name: name.to_owned(), signature: operation.to_string(), documented }
}

/// Prints the next steps and possible improvements.
fn advise(session: &Session<'_>, made: &PackageSummary, package: &Package, provenance: Option<&Provenance>) {
    let unused = &made.unused_imports;
    if !unused.is_empty() {
        session.ui.warn(&format!(
            "connector.toml asks for more than the component imports: {}; take it out of [capabilities.runtime] imports",
            unused.join(", ")
        ));
    }
    let bare: Vec<_> =
        made.operations.iter().filter(|it| !it.documented).map(|it| it.name.as_str()).collect();
    if !bare.is_empty() {
        session.ui.warn(&format!(
            "no documentation: {}; comments (///) before the functions in wit/*.wit are shown to people and agents",
            bare.join(", ")
        ));
    }
    let manifest = package.manifest();
    let undeclared: Vec<_> = made
        .operations
        .iter()
        .map(|it| it.name.as_str())
        .filter(|name| manifest.repeat_rule(name) == RepeatRule::UnlessUnkeyed)
        .collect();
    if !undeclared.is_empty() {
        session.ui.warn(&format!(
            "may it be repeated? Not said of: {}; write \"idempotent\" or \"not_idempotent\" for each under \
             [connector.idempotency.operations], or \"read_only\" under [connector.effects.operations]",
            undeclared.join(", ")
        ));
    }
    let path = files::shown(&made.path);
    let signature = signature_path(&made.path);
    let signed = std::fs::read(&signature).ok().and_then(|bytes| Envelope::parse(&bytes).ok());
    let is_stale = signed.and_then(|it| it.unverified_statement().ok()).is_some_and(|it| {
        it.digest() != package.digest() || (provenance.is_some() && it.provenance() != provenance)
    });
    let replace = if is_stale { " --replace" } else { "" };
    session.ui.note(&format!("next: cofferdam sign {path}{replace}"));
}

impl PackageSummary {
    fn page(&self, page: &mut Page) {
        page.field("package", &format!("{} ({})", files::shown(&self.path), layout::bytes(self.size)));
        page.field("connector", &format!("{}@{}", self.name, self.version));
        page.field("hash", &self.hash);
        for (at, operation) in self.operations.iter().enumerate() {
            page.field(if at == 0 { "operations" } else { "" }, &operation.signature);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn the_sample_manifest_is_valid_once_named() {
        let text = MINIMAL.replace("OWNER/REPOSITORY", "acme/slack");
        assert!(Manifest::parse("connector.toml", &text).is_ok());
        assert!(Manifest::parse("connector.toml", &text.replace("# ", "").replace("Only", "# Only")).is_ok());
        assert!(Manifest::parse("connector.toml", MINIMAL).is_err());
    }

    #[test]
    fn packages_are_named_by_connector_and_version() {
        let name = ConnectorName::parse("github://acme/tools/slack").unwrap();
        assert_eq!(file_name(&name, &"1.2.0-rc.1"), "slack-1.2.0-rc.1.wasm");
    }

    #[test]
    fn a_missing_manifest_suggests_one_to_copy() {
        let error = read_manifest(Path::new("/no/such/connector.toml")).unwrap_err();
        assert!(error.hint().unwrap().contains("[connector]\nname = "), "{error}");
    }
}
