//! `inspect`: the page that a security reviewer reads before trusting a connector.

mod confinement;
mod limit_usage;

use std::path::{Path, PathBuf};

use cofferdam_core::failure::RepeatRule;
use cofferdam_model::manifest::{DeclaredIdempotency, EVERYONES_METHODS, OperationEffect};
use cofferdam_model::trust::{Provenance, ProvenanceRecord, RepositoryUrl};
use cofferdam_runtime::host::{Host, ImportView, LimitView, OperationView, PackageInspection, SignatureView};

pub(super) use limit_usage::LimitUsage;

use crate::layout::{self, Page, TextStyle};
use crate::package_source::{self, SourceOptions, SourcePackage};
use crate::report::CommandError;
use crate::session::{Session, is_installed_name, resolve};

const EXAMPLES: &str = "\
Nothing of the package is run or compiled. A file's hash is what `sha256sum` prints.

Examples:
  cofferdam inspect slack-1.2.0.wasm
  cofferdam inspect github://acme/slack@1.2.0
  cofferdam inspect oci://ghcr.io/acme/slack:1.2.0
  cofferdam inspect slack-1.2.0.wasm --format json
  cofferdam inspect --host";

/// Shows a connector's identity and signer, the access that it asks for and the access that it would get.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A package (a file, oci://HOST/REPOSITORY:TAG or https://HOST/PATH), or an installed connector: NAME@VERSION, or NAME
    /// for its active version.
    #[arg(value_name = "PACKAGE|CONNECTOR", required_unless_present = "host")]
    what: Option<String>,

    /// The signature of a package [default: <PACKAGE>.dsse.json, or on a registry what refers to the package; if it is
    /// there].
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,

    /// Shows instead what confines servers and the compile worker on this machine: each wall is raised around a
    /// thread, which then tries to leave.
    #[arg(long, conflicts_with_all = ["what", "signature"])]
    host: bool,

    #[command(flatten)]
    source: SourceOptions,
}

/// Takes it apart and shows it.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let Args { what, signature, host: _, source } = args;
    let Some(what) = what else { return confinement::run(session) };
    let host = session.host()?;
    let mut inspection = match is_installed_name(&what) {
        true => host.inspect(&resolve(&host, &what)?)?,
        false => inspect_package(session, &host, &what, signature.as_deref(), &source)?,
    };
    let usage = LimitUsage::of(&host, &inspection.name);
    let idle: Vec<_> = usage.iter().flat_map(|usage| usage.idle_limits(&inspection)).collect();
    inspection.risks.extend(idle);
    session.ui.result(&inspection, |it| page(&inspection, session.ui.verbose(), it))
}

/// Inspects a package that is not installed, with the signature in the given file or the one that belongs to it.
pub(super) fn inspect_package(
    session: &Session<'_>,
    host: &Host,
    what: &str,
    signature: Option<&Path>,
    source: &SourceOptions,
) -> Result<PackageInspection, CommandError> {
    let package = package_source::parse(what)?;
    let SourcePackage { bytes, signature, pinned } = source.load(session, &package, signature)?;
    if let Some(pinned) = pinned {
        session.ui.note(&format!("downloaded {pinned}"));
    }
    Ok(host.inspect_package(bytes, signature.as_deref())?)
}

fn page(inspection: &PackageInspection, verbose: bool, page: &mut Page) {
    page.heading(&format!("{}@{}", inspection.name, inspection.version));
    if let Some(description) = &inspection.description {
        page.line(description);
    }
    identity(page, inspection);
    if let Some(stated) = &inspection.provenance {
        page.heading(match &inspection.signature.signer {
            Some(_) => "PROVENANCE, as the signer claims",
            None => "PROVENANCE, as a signature claims that is not trusted here",
        });
        provenance(page, stated);
    }
    if !inspection.risks.is_empty() {
        page.heading("LOOK AT");
        for risk in &inspection.risks {
            page.styled(TextStyle::Doubtful, risk);
        }
    }
    reach(page, inspection);
    page.heading("IMPORTS");
    let (plumbing, others): (Vec<_>, Vec<_>) =
        inspection.imports.iter().partition(|import| import.standing == "plumbing");
    page.table(["IMPORT", "STANDING", "MEANS"], others.into_iter().map(import).collect());
    if !plumbing.is_empty() {
        page.line(&format!("{} more imports grant nothing: every connector may have them", plumbing.len()));
    }
    page.heading("LIMITS OF A CALL");
    let limits = inspection.limits.iter().map(|(name, limit)| {
        let asked = limit.manifest.map_or_else(|| "-".to_owned(), |amount| shown(amount, limit));
        [(*name).to_owned(), shown(limit.effective, limit), asked, shown(limit.ceiling, limit)]
    });
    page.table(["LIMIT", "A CALL GETS", "MANIFEST ASKS", "CEILING"], limits.collect());
    page.heading("OPERATIONS");
    if verbose {
        for operation in &inspection.operations {
            describe(page, operation, !inspection.network.is_empty());
        }
        return;
    }
    let rows = inspection.operations.iter().map(|operation| {
        let effect = operation.effect.map_or("undeclared", OperationEffect::name);
        [operation.name.clone(), effect.to_owned(), operation.repeat.name().to_owned()]
    });
    page.table(["OPERATION", "EFFECT", "REPEATED"], rows.collect());
    page.line("--verbose shows their types and descriptions");
}

fn identity(page: &mut Page, inspection: &PackageInspection) {
    page.heading("IDENTITY");
    page.field("hash", &inspection.hash);
    page.field("size", &layout::bytes(inspection.size));
    match inspection.hash_matches {
        Some(true) => {
            page.styled_field("integrity", TextStyle::Good, "the installed bytes are those of the hash")
        }
        Some(false) => page.styled_field(
            "integrity",
            TextStyle::Bad,
            "CHANGED: the installed bytes are not those of the hash",
        ),
        None => page,
    };
    let signature = &inspection.signature;
    match &signature.signer {
        Some(_) => page.styled_field("signature", TextStyle::Good, &signed_by(signature)),
        None => {
            page.styled_field("signature", TextStyle::Bad, &format!("NOT TRUSTED ({})", signature.status))
        }
    };
    if let Some(reason) = &signature.reason {
        page.field("", reason);
    }
    if let Some(publisher) = &inspection.publisher {
        page.field(
            "publisher",
            &format!("{publisher} (what the manifest says; the signature is what counts)"),
        );
    }
}

/// The status of the signatures, and the keys that made them.
pub(super) fn signed_by(signature: &SignatureView) -> String {
    let SignatureView { status, signers, threshold, .. } = signature;
    let needed = threshold.map(|number| format!(" ({number} needed)")).unwrap_or_default();
    match signers.as_slice() {
        [] => format!("{status}{needed}"),
        [signer] => format!("{status}, by the key {signer}{needed}"),
        several => format!("{status}, by {} keys{needed}: {}", several.len(), several.join(", ")),
    }
}

/// Adds the sources, tools and dependencies of a package, in a few lines.
pub(super) fn provenance(page: &mut Page, provenance: &Provenance) {
    let ProvenanceRecord { source, tools, target, dependencies } = provenance.record();
    match source {
        Some(source) => {
            let repository =
                source.repository.as_ref().map_or("a repository without a remote", RepositoryUrl::as_str);
            let directory = if source.directory.is_empty() { "" } else { ", directory " };
            page.field("source", &format!("{repository}{directory}{}", source.directory));
            match source.clean {
                true => page.field("commit", &source.commit),
                false => page.styled_field(
                    "commit",
                    TextStyle::Doubtful,
                    &format!("{}, and changes that are not in it", source.commit),
                ),
            };
        }
        None => {
            page.styled_field("source", TextStyle::Doubtful, "in no repository");
        }
    }
    let tools: Vec<_> = tools.iter().map(ToString::to_string).collect();
    page.field("made with", &format!("{}, for {target}", tools.join(", ")));
    let only_run = dependencies.iter().filter(|it| it.build).count();
    let listed = format!("{}, {only_run} of which only run during the build", dependencies.len());
    page.field("dependencies", &listed);
}

fn reach(page: &mut Page, inspection: &PackageInspection) {
    page.heading("NETWORK");
    match inspection.network.is_empty() {
        true => page.styled(TextStyle::Good, "none: it cannot reach any host"),
        false => page,
    };
    for host in &inspection.network {
        let clear = host.starts_with("http://");
        let tone = if clear { TextStyle::Bad } else { TextStyle::Doubtful };
        page.styled(tone, &if clear { format!("{host} (not encrypted)") } else { host.clone() });
    }
    if !inspection.methods.is_empty() {
        let (extra, everyones) = (inspection.methods.join(", "), EVERYONES_METHODS.join(", "));
        page.styled(TextStyle::Doubtful, &format!("methods: {extra}, besides {everyones}"));
    }
    page.heading("CREDENTIALS");
    match inspection.credentials.is_empty() {
        true => page.styled(TextStyle::Good, "none"),
        false => page,
    };
    for credential in &inspection.credentials {
        page.styled(TextStyle::Doubtful, &credential.to_string());
        for host in credential.hosts.iter().filter(|host| host.starts_with("http://")) {
            page.styled(TextStyle::Bad, &format!("  {host} gets it unencrypted"));
        }
    }
}

fn import(import: &ImportView) -> [String; 3] {
    let means = match import.standing {
        "declared" => "the manifest asks for it, and the host grants it",
        "shut" => "the manifest names it: there to link against, and every use is denied",
        "undeclared" => "REFUSED: the manifest does not ask for it",
        _ => "REFUSED: this host does not have it",
    };
    [import.name.clone(), import.standing.to_owned(), means.to_owned()]
}

/// An amount in a unit that people read.
pub(super) fn shown(amount: u64, limit: &LimitView) -> String {
    match limit.unit {
        "bytes" => layout::bytes(amount),
        "ms" if amount.is_multiple_of(1000) => format!("{} s", amount / 1000),
        "ms" => format!("{amount} ms"),
        _ => thousands(amount),
    }
}

/// `30_000_000_000`, as the manifest may write it.
fn thousands(amount: u64) -> String {
    let digits = amount.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

fn describe(page: &mut Page, operation: &OperationView, reaches: bool) {
    page.line(&operation.signature);
    if let Some(docs) = &operation.docs {
        page.block(4, docs);
    }
    page.block(
        4,
        match operation.effect {
            Some(OperationEffect::ReadOnly) => {
                "Declared read_only: changes nothing; the host lets it send GET, HEAD and OPTIONS alone."
            }
            Some(OperationEffect::Additive) => "Declared additive: adds, and neither overwrites nor removes.",
            Some(OperationEffect::Convergent) => {
                "Declared convergent: may overwrite or remove; the same arguments again change nothing more."
            }
            Some(OperationEffect::Destructive) => "Declared destructive: may overwrite or remove.",
            None if reaches => "Its effect is not declared: take it for destructive.",
            None => "Its effect is not declared; it reaches no host.",
        },
    );
    page.block(4, idempotency(operation));
    if operation.partial {
        page.block(4, "May answer in part: `errors` has the items that failed.");
    }
}

/// Returns the manifest's rule for repeating it, and its effect.
fn idempotency(operation: &OperationView) -> &'static str {
    match (operation.idempotency, operation.repeat) {
        (DeclaredIdempotency::Declared, _) => "Declared idempotent: repeated by the host, whatever it sends.",
        (DeclaredIdempotency::NotIdempotent, _) => "Not idempotent: never repeated by the host.",
        (DeclaredIdempotency::Undeclared, RepeatRule::Always) => {
            "Idempotency undeclared: repeated by the host, since it only reads."
        }
        (DeclaredIdempotency::Undeclared, _) => {
            "Idempotency undeclared: not repeated by the host once it sent anything but GET, HEAD, OPTIONS, TRACE, PUT or \
             DELETE without the call's idempotency key."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn large_amounts_are_grouped() {
        let shown = [0, 999, 1_000, 123_456, 30_000_000_000].map(thousands);
        assert_eq!(shown, ["0", "999", "1_000", "123_456", "30_000_000_000"]);
    }
}
