//! `new`: makes a connector's project: manifest, WIT, code, a test, and what editors and CI need.

mod name;
mod openapi;
mod template;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{ArgGroup, ValueEnum};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_model::manifest::{ConnectorName, CredentialKind, HostGrant};
use cofferdam_model::trust::PublicKey;
use cofferdam_openapi::Report;
use serde::Serialize;

use self::name::GivenName;
use self::openapi::{Generation, OpenApiOptions};
use self::template::{Plan, Service};
use crate::process_user::ProcessUser;
use crate::project::Language;
use crate::report::CommandError;
use crate::session::Session;
use crate::ui::Ui;
use crate::{author_key, files, prompt, sdk_files};

const EXAMPLES: &str = "\
The project builds and passes its test as it is: go on with `cofferdam test`, `cofferdam dev` and `cofferdam build`. \
What is not said is asked on a terminal; elsewhere, and with --quiet, the language is Rust, the owner this user, and no \
service is called. Nothing is overwritten.

The author's signing key is in $XDG_CONFIG_HOME/cofferdam/author.key, and is made if there is none.

Examples:
  cofferdam new weather
  cofferdam new github://acme/weather --lang python
  cofferdam new issues --owner acme --http api.tickets.example --credential bearer
  cofferdam new weather --vendor-sdk --dir connectors/weather
  cofferdam new issues --openapi github.json --operations 'issues/*'
  cofferdam new issues --openapi https://api.example.com/openapi.json --check
  cofferdam new issues --update";

/// Makes the project of a new connector.
#[derive(Debug, clap::Args)]
#[command(name = "new", after_help = EXAMPLES)]
#[command(group = ArgGroup::new("service").args(["http", "openapi", "update"]).multiple(true))]
pub(crate) struct Args {
    /// Its name, like `weather` or `github://acme/weather`.
    #[arg(value_name = "NAME")]
    name: String,

    /// The account that publishes it, if the name has none [default: git's github.user, or the name of this user].
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,

    /// The language.
    #[arg(long, value_enum, value_name = "LANGUAGE")]
    lang: Option<LanguageName>,

    /// The host of the service that it calls, like api.example.com or http://localhost:8080; none without it.
    #[arg(long, value_name = "HOST", value_parser = host)]
    http: Option<HostGrant>,

    /// The kind of credential that the service takes.
    #[arg(long, value_name = "KIND", requires = "service", value_parser = credential_kinds())]
    credential: Option<CredentialKind>,

    /// Copies the Rust SDK into the project, which then builds without cofferdam's source.
    ///
    /// By default the project refers to the source that this program was built from, if that is still there.
    #[arg(long)]
    vendor_sdk: bool,

    /// The directory of the project [default: the name].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    openapi: OpenApiOptions,
}

/// The name of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LanguageName {
    /// Rust: small and fast; needs cargo.
    Rust,
    /// Python: needs python3; the component has an interpreter inside (18 MB).
    Python,
    /// JavaScript: needs Node.js; the component has an interpreter inside (13 MB).
    #[value(alias = "javascript")]
    Js,
}

/// The made project.
#[derive(Debug, Serialize)]
struct ProjectSummary {
    directory: PathBuf,
    connector: ConnectorName,
    language: &'static str,
    /// The SDK in the project or outside; only for Rust.
    #[serde(skip_serializing_if = "Option::is_none")]
    sdk: Option<String>,
    author_key: PathBuf,
    public_key: PublicKey,
    files: Vec<String>,
    /// Only of a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    carried_over: Option<CarriedOver>,
}

/// The number of operations of a document, by what became of them.
#[derive(Debug, Serialize)]
struct CarriedOver {
    exact: usize,
    with_json_text: usize,
    refused: usize,
}

impl From<&Report> for CarriedOver {
    fn from(report: &Report) -> Self {
        let (exact, with_json_text, refused) = report.counts();
        Self { exact, with_json_text, refused }
    }
}

fn host(text: &str) -> Result<HostGrant, String> {
    let text = text.strip_prefix("https://").unwrap_or(text).trim_end_matches('/');
    let authority = text.strip_prefix("http://").unwrap_or(text);
    let with_port = match authority.contains(':') {
        true => text.to_owned(),
        false if text == authority => format!("{text}:443"),
        false => format!("{text}:80"),
    };
    HostGrant::parse(&with_port).map_err(|refused| format!("{}; {}", refused.message(), refused.fix()))
}

fn credential_kinds() -> impl clap::builder::TypedValueParser<Value = CredentialKind> {
    let names = PossibleValuesParser::new(CredentialKind::ALL.iter().map(|kind| kind.name()));
    names.try_map(|name| credential_kind(&name))
}

fn credential_kind(name: &str) -> Result<CredentialKind, String> {
    let named = CredentialKind::ALL.iter().copied().find(|kind| kind.name() == name);
    named.ok_or_else(|| {
        let names: Vec<_> = CredentialKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("write one of {}", names.join(", "))
    })
}

/// Asks what was not said, and writes the project.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let given = GivenName::parse(&args.name)?;
    let dir = match (&args.dir, &given) {
        (Some(dir), _) => dir.clone(),
        (None, GivenName::Full(name)) => name::short(name).into(),
        (None, GivenName::Bare(name)) => name.into(),
    };
    if args.openapi.update {
        return openapi::update(session, &args.openapi, &dir, args.credential);
    }
    if args.openapi.check {
        let connector = connector(args.owner, given, session.ui)?;
        let generation = Generation::read(session, &args.openapi, connector, args.credential, &dir, None)?;
        return openapi::show_check(session, &generation.check()?);
    }
    // Before questions are asked in vain.
    let target = NewDirectory::check(&dir)?;
    let wishes = args.openapi.clone();
    let credential = args.credential;
    let plan = plan(args, given, session.ui)?;
    let generated = match wishes.openapi {
        Some(_) => {
            let connector = plan.connector.clone();
            let generation = Generation::read(session, &wishes, connector, credential, &dir, None)?;
            let project = generation.project()?;
            Some((generation.settings.text(), project))
        }
        None => None,
    };
    let author = author_key::load_or_create()?;
    let mut files = match &generated {
        Some((settings, project)) => plan.files_of_document(settings, project),
        None => plan.files(),
    };
    if plan.is_vendored {
        let (vendor, _) = template::vendored_sdk();
        files.extend(
            sdk_files::sdk().map(|(name, text)| (vendor.join(name).to_string_lossy().into(), text.into())),
        );
    }
    target.write(&files)?;
    if let Some((_, project)) = &generated {
        let rust: Vec<_> = project.files.iter().map(|file| file.path.as_str()).collect();
        if !openapi::format(&dir, &rust) {
            session.ui.note("rustfmt was not found: the generated code is not formatted as cargo fmt would");
        }
    }
    let made = ProjectSummary {
        connector: plan.connector.clone(),
        language: plan.language.name(),
        sdk: (plan.language == Language::Rust).then(|| plan.sdk.clone()),
        author_key: author.path,
        public_key: author.key.public(),
        files: files.into_iter().map(|(name, _)| name).filter(|name| !name.starts_with("vendor/")).collect(),
        directory: dir,
        carried_over: generated.as_ref().map(|(_, project)| CarriedOver::from(&project.report)),
    };
    session.ui.result(&made, |page| {
        page.field("project", &files::shown(&made.directory));
        page.field("connector", made.connector.as_str());
        page.field("language", made.language);
        if let Some(CarriedOver { exact, with_json_text, refused }) = &made.carried_over {
            let text = format!(
                "{exact} exact, {with_json_text} with JSON text, {refused} refused (--check says more)"
            );
            page.field("operations", &text);
        }
        if let Some(sdk) = &made.sdk {
            page.field("sdk", sdk);
        }
        let new = if author.is_new { " (made now)" } else { "" };
        page.field("author's key", &format!("{}{new}", files::shown(&made.author_key)));
        page.field("public key", &made.public_key.to_string());
    })?;
    let shown = files::shown(&made.directory);
    session.ui.note(&format!(
        "next: look at {}, then `cofferdam test` and `cofferdam dev` in {shown}",
        plan.source()
    ));
    Ok(())
}

fn plan(args: Args, given: GivenName, ui: &Ui) -> Result<Plan, HostError> {
    let Args { owner, lang, http, credential, vendor_sdk, openapi, .. } = args;
    let connector = connector(owner, given, ui)?;
    let is_openapi = openapi.openapi.is_some();
    let language = match lang {
        Some(lang) if is_openapi && Language::from(lang) != Language::Rust => {
            let message = "A connector of an OpenAPI document is written in Rust.";
            return Err(HostError::new(HostErrorKind::Validation, message).with_hint("Leave out --lang."));
        }
        Some(lang) => lang.into(),
        None if is_openapi => Language::Rust,
        None => prompt::ask(ui, "Language (rust, python, js)", "rust", |text| {
            LanguageName::from_str(text, true)
                .map(Language::from)
                .map_err(|_| "write rust, python or js".to_owned())
        })?
        .unwrap_or(Language::Rust),
    };
    let service = match http {
        Some(host) => Some(Service { host, credential }),
        None if is_openapi => None,
        None => ask_service(ui)?,
    };
    let (sdk, is_vendored) = match (language, sdk_files::source_tree()) {
        (Language::Rust, Some(tree)) if !vendor_sdk => (tree, false),
        (Language::Rust, _) => (template::vendored_sdk().1.to_owned(), true),
        (Language::Python | Language::JavaScript, _) => (String::new(), false),
    };
    Ok(Plan { connector, language, service, sdk, is_vendored, is_openapi })
}

/// Returns the whole name of the connector.
fn connector(owner: Option<String>, given: GivenName, ui: &Ui) -> Result<ConnectorName, HostError> {
    match (given, owner) {
        (GivenName::Full(name), None) => Ok(name),
        (GivenName::Full(name), Some(owner)) if owner == name.owner() => Ok(name),
        (GivenName::Full(name), Some(_)) => {
            let message = format!("The name {name} has another owner than --owner.");
            Err(HostError::new(HostErrorKind::Validation, message).with_hint("Leave out one of the two."))
        }
        (GivenName::Bare(name), Some(owner)) => name::owned_by(&owner, &name),
        (GivenName::Bare(name), None) => ask_owner(ui, &name),
    }
}

fn ask_owner(ui: &Ui, name: &str) -> Result<ConnectorName, HostError> {
    let default = default_owner();
    let question = "Owner, the account that publishes it";
    let read = |text: &str| name::owned_by(text, name).map_err(|error| error.message().to_owned());
    if let Some(answer) = prompt::ask(ui, question, default.as_deref().unwrap_or_default(), read)? {
        return Ok(answer);
    }
    let default = default.ok_or_else(|| {
        HostError::new(HostErrorKind::Validation, "The connector has no owner.")
            .with_hint("Name the account that publishes it: --owner acme.")
    })?;
    name::owned_by(&default, name)
}

/// Returns the account of git's user at GitHub, or the name of this process's user.
fn default_owner() -> Option<String> {
    let git = Command::new("git").args(["config", "--get", "github.user"]).output();
    let git = git.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let user = || name::as_owner(ProcessUser::look_up().name()?);
    git.and_then(|text| name::as_owner(&text)).or_else(user)
}

fn ask_service(ui: &Ui) -> Result<Option<Service>, HostError> {
    let question = "Host of the service that it calls, like api.example.com; empty for none";
    let read = |text: &str| match text {
        "" => Ok(None),
        text => host(text).map(Some),
    };
    let Some(host) = prompt::ask(ui, question, "", read)?.flatten() else { return Ok(None) };
    let names: Vec<_> = CredentialKind::ALL.iter().map(|kind| kind.name()).collect();
    let question = format!("Its credential ({}); empty for none", names.join(", "));
    let read = |text: &str| match text {
        "" => Ok(None),
        text => credential_kind(text).map(Some),
    };
    let credential = prompt::ask(ui, &question, "", read)?.flatten();
    Ok(Some(Service { host, credential }))
}

impl From<LanguageName> for Language {
    fn from(name: LanguageName) -> Self {
        match name {
            LanguageName::Rust => Self::Rust,
            LanguageName::Python => Self::Python,
            LanguageName::Js => Self::JavaScript,
        }
    }
}

/// A directory that does not exist, or is empty.
struct NewDirectory<'d> {
    path: &'d Path,
    existed: bool,
}

impl<'d> NewDirectory<'d> {
    fn check(path: &'d Path) -> Result<Self, HostError> {
        let taken = |what: &str| {
            let message = format!("{} {what}; nothing was changed.", files::shown(path));
            HostError::new(HostErrorKind::Conflict, message)
                .with_hint("Name another directory with --dir, or choose another name.")
        };
        let existed = match path.read_dir().map(|entries| entries.count()) {
            Ok(0) => true,
            Ok(_) => return Err(taken("exists already and is not empty")),
            Err(error) if error.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => {
                false
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(files::unwritable(path, error));
            }
            Err(_) => return Err(taken("exists already")),
        };
        Ok(Self { path, existed })
    }

    /// Writes all files or none.
    fn write(&self, files: &[(String, String)]) -> Result<(), HostError> {
        let written = files.iter().try_for_each(|(name, text)| {
            let path = self.path.join(name);
            let write = || {
                fs::create_dir_all(files::parent(&path))?;
                let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
                file.write_all(text.as_bytes())
            };
            write().map_err(|error| files::unwritable(&path, error))
        });
        if written.is_err() {
            self.undo(files);
        }
        written
    }

    /// Removes what was written. It was not there before, and nothing else is removed.
    fn undo(&self, files: &[(String, String)]) {
        for (name, _) in files {
            fs::remove_file(self.path.join(name)).ok();
        }
        let mut directories: Vec<_> = files
            .iter()
            .flat_map(|(name, _)| Path::new(name).ancestors().skip(1))
            .filter(|dir| *dir != Path::new(""))
            .collect();
        directories.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
        for dir in directories {
            // Fails for those that are not empty and those that are gone.
            fs::remove_dir(self.path.join(dir)).ok();
        }
        if !self.existed {
            fs::remove_dir(self.path).ok();
        }
    }
}
