//! `new --openapi`: the project of an OpenAPI document, its update, and the report of what can be carried over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::manifest::{ConnectorName, CredentialKind, Manifest};
use cofferdam_openapi::{
    Document, DocumentLoader, DocumentReader, GENERATED, InterfaceDiff, Location, MAX_FILE_BYTES,
    OpenApiError, OperationStatus, Project, ProjectOptions, Report, diff_interfaces,
};
use serde::{Deserialize, Serialize};
use url::Url;

use super::name;
use crate::layout::{Page, TextStyle};
use crate::package_source::SourceOptions;
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, runtime};

/// The file with the wishes of the author.
pub(super) const SETTINGS: &str = "openapi.toml";

/// Options for connectors that are made of a document.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "OpenAPI")]
pub(super) struct OpenApiOptions {
    /// Makes the connector of this OpenAPI document, version 3.0 or 3.1: a file, or an https address.
    #[arg(long, value_name = "FILE|URL", conflicts_with = "http")]
    pub(super) openapi: Option<String>,

    /// The operations: ids, names, or methods with paths, with * for any text, like 'issues/*' or 'GET /repos/*'. All
    /// without it.
    #[arg(long, value_name = "PATTERN", num_args = 1..)]
    operations: Vec<String>,

    /// The header field in which the service honours idempotency keys, like Idempotency-Key.
    #[arg(long, value_name = "NAME")]
    idempotency_header: Option<String>,

    /// The service, instead of the document's servers, like https://api.example.com/v1.
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// Follows references of the document to the network.
    #[arg(long)]
    allow_references: bool,

    /// Writes the generated files of a project again, and says what changed. Everything else stays as it is.
    #[arg(long)]
    pub(super) update: bool,

    /// Says what of the document cannot be carried over, and writes nothing.
    #[arg(long, conflicts_with = "update", requires = "openapi")]
    pub(super) check: bool,
}

/// The content of `openapi.toml`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    document: String,
    #[serde(default)]
    operations: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<String>,
    #[serde(default)]
    allow_references: bool,
    /// Operations that the author writes, in `src/by_hand.rs`.
    #[serde(default)]
    by_hand: Vec<String>,
}

impl Settings {
    pub(super) fn text(&self) -> String {
        let body = toml::to_string(self).unwrap_or_default();
        format!("# The document of this connector: `cofferdam new --update` reads it.\n{body}")
    }
}

/// Reads files and addresses.
struct Loader<'s, 'a> {
    session: &'s Session<'a>,
    /// The directory that references to files stay in.
    root: Option<PathBuf>,
}

impl DocumentLoader for Loader<'_, '_> {
    fn load(&mut self, location: &Location) -> Result<Vec<u8>, String> {
        match location {
            Location::File(path) => {
                let path = Path::new(path);
                let real = path.canonicalize().map_err(|error| files::reason(&error))?;
                // A link could lead elsewhere.
                let root = self.root.get_or_insert_with(|| files::parent(&real).to_owned());
                if !real.starts_with(root) {
                    return Err("it is a link that leaves the document's directory".to_owned());
                }
                let size = real.metadata().map_err(|error| files::reason(&error))?;
                if !size.is_file() {
                    return Err("it is no file".to_owned());
                }
                if size.len() > limit() {
                    return Err(format!("it has more than {} MiB", MAX_FILE_BYTES / 1024 / 1024));
                }
                fs::read(&real).map_err(|error| files::reason(&error))
            }
            Location::Web(url) => {
                let client =
                    SourceOptions::usual().client(self.session).map_err(|error| error.to_string())?;
                let fetched = runtime::block_on(async { Ok(client.fetch_document(url, limit()).await) });
                match fetched {
                    Ok(Ok(bytes)) => Ok(bytes),
                    Ok(Err(error)) => Err(error.to_string().trim_end_matches('.').to_owned()),
                    Err(_) => Err("the download was ended".to_owned()),
                }
            }
        }
    }
}

fn limit() -> u64 {
    u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX)
}

/// Everything that a command needs to make a project.
pub(super) struct Generation {
    document: Document,
    options: ProjectOptions,
    pub(super) settings: Settings,
}

impl Generation {
    /// Reads the document. `directory` is that of the project, which its settings are relative to.
    pub(super) fn read(
        session: &Session<'_>,
        wishes: &OpenApiOptions,
        connector: ConnectorName,
        credential: Option<CredentialKind>,
        directory: &Path,
        stored: Option<Settings>,
    ) -> Result<Self, CommandError> {
        let is_stored = stored.is_some();
        let mut settings = stored.unwrap_or_else(|| Settings {
            document: String::new(),
            operations: Vec::new(),
            idempotency_header: None,
            server: None,
            credential: None,
            allow_references: false,
            by_hand: Vec::new(),
        });
        let shown = wishes.openapi.clone().unwrap_or_else(|| match Url::parse(&settings.document) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => settings.document.clone(),
            _ => directory.join(&settings.document).to_string_lossy().into_owned(),
        });
        if let Some(given) = &wishes.openapi {
            settings.document = stored_path(given, directory);
        }
        if !wishes.operations.is_empty() || !is_stored {
            settings.operations.clone_from(&wishes.operations);
        }
        settings.idempotency_header = wishes.idempotency_header.clone().or(settings.idempotency_header);
        settings.server = wishes.server.clone().or(settings.server);
        settings.credential = credential.map(|kind| kind.name().to_owned()).or(settings.credential);
        settings.allow_references |= wishes.allow_references;
        let location = match Url::parse(&shown) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => Location::Web(url),
            _ => Location::File(shown.clone()),
        };
        let mut loader = Loader { session, root: None };
        let document = Document::read(location, &mut loader, settings.allow_references).map_err(refused)?;
        let name = name::short(&connector).to_owned();
        let owner = name::kebab(connector.owner()).unwrap_or_else(|| "connectors".into());
        let credential = settings.credential.as_deref().and_then(|name| super::credential_kind(name).ok());
        let options = ProjectOptions {
            package: format!("{owner}:{name}@0.1.0"),
            name,
            connector,
            operations: settings.operations.clone(),
            idempotency_header: settings.idempotency_header.clone(),
            server: settings.server.clone(),
            credential,
            by_hand: settings.by_hand.clone(),
        };
        Ok(Self { document, options, settings })
    }

    pub(super) fn project(&self) -> Result<Project, HostError> {
        DocumentReader::new(&self.document).project(&self.options).map_err(refused)
    }

    pub(super) fn check(&self) -> Result<Report, HostError> {
        DocumentReader::new(&self.document).check(&self.options).map_err(refused)
    }

    fn needs(&self) -> Result<std::collections::BTreeMap<&'static str, Vec<String>>, HostError> {
        DocumentReader::new(&self.document).needs(&self.options).map_err(refused)
    }
}

/// Returns the document as the settings name it: an address, or a path that is relative to the project.
fn stored_path(given: &str, directory: &Path) -> String {
    if Url::parse(given).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
        return given.to_owned();
    }
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (file, directory) = (absolute(Path::new(given)), absolute(directory));
    let shared = file.components().zip(directory.components()).take_while(|(a, b)| a == b).count();
    let up = directory.components().skip(shared).map(|_| Path::new("..").to_owned());
    let down = file.components().skip(shared).map(|part| PathBuf::from(part.as_os_str()));
    up.chain(down).collect::<PathBuf>().to_string_lossy().into_owned()
}

fn refused(error: OpenApiError) -> HostError {
    HostError::new(HostErrorKind::Validation, format!("{error}.").replace("..", "."))
        .with_hint(error.fix().to_owned())
}

/// Reads the settings of a project.
pub(super) fn stored(directory: &Path) -> Result<Settings, HostError> {
    let path = directory.join(SETTINGS);
    let text = fs::read_to_string(&path).map_err(|error| {
        let error = files::unreadable("The settings", &path, error);
        error.with_hint(
            "--update is for projects that `cofferdam new --openapi` has made; name theirs with --dir.",
        )
    })?;
    toml::from_str(&text).map_err(|error| {
        let message = format!("{} is not valid: {}.", files::shown(&path), error.message());
        HostError::new(HostErrorKind::Validation, message)
            .with_hint("It has document, operations, idempotency_header, server, credential, allow_references and by_hand.")
    })
}

/// Formats Rust files, if the toolchain can. They are valid without.
pub(super) fn format(directory: &Path, paths: &[&str]) -> bool {
    let paths: Vec<_> = paths.iter().filter(|path| path.ends_with(".rs")).collect();
    let mut command = Command::new("rustfmt");
    command.args(["--edition", "2024"]).args(&paths).current_dir(directory);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// The report of a document, as programs get it.
#[derive(Debug, Serialize)]
struct CheckSummary<'r> {
    operations: Vec<OperationSummary<'r>>,
    exact: usize,
    with_json_text: usize,
    refused: usize,
}

#[derive(Debug, Serialize)]
struct OperationSummary<'r> {
    id: &'r str,
    name: &'r str,
    method: &'r str,
    path: &'r str,
    status: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notes: &'r [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'r str>,
}

/// Prints the report.
pub(super) fn show_check(session: &Session<'_>, report: &Report) -> Result<(), CommandError> {
    let (exact, with_json_text, refused) = report.counts();
    let operations = report.operations.iter().map(|it| {
        let (status, error) = match &it.status {
            OperationStatus::Exact => ("exact", None),
            OperationStatus::WithJsonText => ("with_json_text", None),
            OperationStatus::Refused(error) => ("refused", Some(error)),
        };
        let reason = error.map(ToString::to_string);
        let (id, name, method, path) =
            (it.id.as_str(), it.name.as_str(), it.method.as_str(), it.path.as_str());
        OperationSummary {
            id,
            name,
            method,
            path,
            status,
            notes: &it.notes,
            reason,
            fix: error.map(OpenApiError::fix),
        }
    });
    let summary = CheckSummary { operations: operations.collect(), exact, with_json_text, refused };
    session.ui.result(&summary, |page| {
        for operation in &summary.operations {
            let style = match operation.status {
                "exact" => TextStyle::Good,
                "with_json_text" => TextStyle::Doubtful,
                _ => TextStyle::Bad,
            };
            let status = operation.status.replace('_', " ");
            page.styled(
                style,
                &format!("{} ({} {}): {status}", operation.name, operation.method, operation.path),
            );
            for note in operation.notes {
                page.block(2, note);
            }
            if let Some(reason) = &operation.reason {
                page.block(2, reason);
            }
            if let Some(fix) = operation.fix {
                page.block(2, fix);
            }
        }
        page.heading(&format!(
            "{} operations: {exact} exact, {with_json_text} with JSON text, {refused} refused",
            summary.operations.len()
        ));
    })
}

/// The changes of an update.
#[derive(Debug, Default, Serialize)]
struct UpdateSummary {
    directory: PathBuf,
    operations: ChangeList,
    types: ChangeList,
    grants: GrantChanges,
    /// Operations that the manifest does not name, and those that it names in vain.
    manifest: ManifestChanges,
    refused: Vec<String>,
    files_written: Vec<String>,
    files_removed: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct ChangeList {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct GrantChanges {
    hosts_needed: Vec<String>,
    hosts_unused: Vec<String>,
    credentials_needed: Vec<String>,
    credentials_unused: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct ManifestChanges {
    missing: Vec<String>,
    stale: Vec<String>,
}

/// Writes the generated files of a project again.
pub(super) fn update(
    session: &Session<'_>,
    wishes: &OpenApiOptions,
    directory: &Path,
    credential: Option<CredentialKind>,
) -> Result<(), CommandError> {
    let settings = stored(directory)?;
    let manifest_path = directory.join("connector.toml");
    let manifest_text = fs::read_to_string(&manifest_path)
        .map_err(|error| files::unreadable("The manifest", &manifest_path, error))?;
    let manifest =
        Manifest::parse(&files::shown(&manifest_path), &manifest_text).map_err(files::document_error)?;
    let generation =
        Generation::read(session, wishes, manifest.name().clone(), credential, directory, Some(settings))?;
    let project = generation.project()?;
    let wit = format!("wit/{}.wit", name::short(manifest.name()));
    let old_interface = fs::read_to_string(directory.join(&wit)).unwrap_or_default();
    let new_interface =
        project.files.iter().find(|file| file.path == wit).map_or("", |file| file.text.as_str());
    let diff = diff_interfaces(&old_interface, new_interface);
    let needs = generation.needs()?;
    let mut summary = UpdateSummary { directory: directory.to_owned(), ..UpdateSummary::default() };
    summary.grants = grant_changes(&manifest, &needs);
    summary.manifest = manifest_changes(&manifest, &project.report);
    for operation in &project.report.operations {
        if let OperationStatus::Refused(error) = &operation.status {
            summary.refused.push(format!("{}: {error}", operation.name));
        }
    }
    lists(&mut summary, diff);
    let generated: Vec<_> = project.files.iter().filter(|file| file.is_generated).collect();
    // All are checked before any is written.
    for file in &generated {
        let path = directory.join(&file.path);
        if path.symlink_metadata().is_ok() && !is_generated(&path) {
            let message = format!("{} would be written again, and is not generated.", files::shown(&path));
            let hint = "Rename it; its first line says of a generated file that it is one.";
            return Err(HostError::new(HostErrorKind::Conflict, message).with_hint(hint).into());
        }
    }
    for file in &generated {
        let path = directory.join(&file.path);
        if let Err(error) = fs::create_dir_all(files::parent(&path)) {
            return Err(files::unwritable(&path, error).into());
        }
        files::write_whole(&path, file.text.as_bytes())?;
        summary.files_written.push(file.path.clone());
    }
    for path in leftovers(directory, &generated.iter().map(|file| file.path.as_str()).collect::<Vec<_>>()) {
        fs::remove_file(directory.join(&path))
            .map_err(|error| files::unwritable(&directory.join(&path), error))?;
        summary.files_removed.push(path);
    }
    files::write_whole(&directory.join(SETTINGS), generation.settings.text().as_bytes())?;
    let paths: Vec<_> = generated.iter().map(|file| file.path.as_str()).collect();
    if !format(directory, &paths) {
        session.ui.note("rustfmt was not found: the generated code is not formatted as cargo fmt would");
    }
    session.ui.result(&summary, |page| show_update(page, &summary))
}

fn lists(summary: &mut UpdateSummary, diff: InterfaceDiff) {
    summary.operations = ChangeList {
        added: diff.added_operations,
        removed: diff.removed_operations,
        changed: diff.changed_operations,
    };
    summary.types =
        ChangeList { added: diff.added_types, removed: diff.removed_types, changed: diff.changed_types };
}

fn show_update(page: &mut Page, summary: &UpdateSummary) {
    page.field("project", &files::shown(&summary.directory));
    let mut any = false;
    let mut list = |page: &mut Page, sign: &str, what: &str, names: &[String]| {
        for name in names {
            any = true;
            let style = match sign {
                "+" => TextStyle::Good,
                "-" => TextStyle::Bad,
                _ => TextStyle::Doubtful,
            };
            page.styled(style, &format!("{sign} {what} {name}"));
        }
    };
    for (what, changes) in [("operation", &summary.operations), ("type", &summary.types)] {
        list(page, "+", what, &changes.added);
        list(page, "-", what, &changes.removed);
        list(page, "~", what, &changes.changed);
    }
    let grants = &summary.grants;
    list(page, "+", "host, not yet in connector.toml:", &grants.hosts_needed);
    list(page, "-", "host, no longer needed:", &grants.hosts_unused);
    list(page, "+", "credential, not yet in connector.toml:", &grants.credentials_needed);
    list(page, "-", "credential, no longer needed:", &grants.credentials_unused);
    list(page, "+", "effect and idempotency, to be written in connector.toml:", &summary.manifest.missing);
    list(page, "-", "effect and idempotency, to be removed from connector.toml:", &summary.manifest.stale);
    list(page, "!", "refused:", &summary.refused);
    if !any {
        page.line("nothing changed but documentation, at most");
    }
}

/// Compares what operations need with what the manifest grants. An update never widens what a connector may reach.
fn grant_changes(
    manifest: &Manifest,
    needs: &std::collections::BTreeMap<&'static str, Vec<String>>,
) -> GrantChanges {
    let needed = |what: &str| needs.get(what).cloned().unwrap_or_default();
    let (hosts, credentials) = (needed("hosts"), needed("credentials"));
    let granted: Vec<_> = manifest.hosts().iter().map(ToString::to_string).collect();
    let bound: Vec<_> = manifest.credentials().iter().map(|credential| credential.label()).collect();
    let minus = |a: &[String], b: &[String]| a.iter().filter(|it| !b.contains(it)).cloned().collect();
    GrantChanges {
        hosts_needed: minus(&hosts, &granted),
        hosts_unused: minus(&granted, &hosts),
        credentials_needed: minus(&credentials, &bound),
        credentials_unused: minus(&bound, &credentials),
    }
}

fn manifest_changes(manifest: &Manifest, report: &Report) -> ManifestChanges {
    let carried = report.operations.iter().filter(|it| !matches!(it.status, OperationStatus::Refused(_)));
    let names: Vec<_> = carried.map(|it| it.name.clone()).collect();
    let named: Vec<_> = manifest.operations_named().map(ToOwned::to_owned).collect();
    ManifestChanges {
        missing: names.iter().filter(|name| !named.contains(name)).cloned().collect(),
        stale: named.iter().filter(|name| !names.contains(name)).cloned().collect(),
    }
}

/// Returns true for a file whose first line says that it is generated.
fn is_generated(path: &Path) -> bool {
    let is_start = |text: String| text.lines().next().is_some_and(|first| first.contains(GENERATED));
    fs::read_to_string(path).is_ok_and(is_start)
}

/// Returns the generated files of an older document.
fn leftovers(directory: &Path, current: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["src/generated", "tests"] {
        let entries: io::Result<Vec<_>> = fs::read_dir(directory.join(folder)).and_then(Iterator::collect);
        for entry in entries.unwrap_or_default() {
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if !current.contains(&path.as_str()) && is_generated(&entry.path()) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
