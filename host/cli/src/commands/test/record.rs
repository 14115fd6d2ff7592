//! `test --record`: makes a scenario from calls of a real service.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_core::document::quoted;
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::strict_json;
use cofferdam_core::suggest;
use cofferdam_dev::{MemoryVault, RealNetwork, Recording, TestRunner, parse_scenarios, test_binding};
use cofferdam_egress::vault::{BindingName, Vault};
use serde::Serialize;
use serde_json::{Map, Value};

use super::page;
use super::project::TestedProject;
use crate::commands::packaging;
use crate::config_file::ConfigFile;
use crate::files;
use crate::report::CommandError;
use crate::session::{Session, read_roots};

/// The options of a recording.
#[derive(Debug, clap::Args)]
pub(super) struct RecordArgs {
    /// Calls the real service instead, and writes what it answers as a scenario to this new file.
    ///
    /// Secrets, cookies and personal header fields are replaced. A recording in which a bound secret is left is not
    /// written.
    #[arg(long, value_name = "FILE", requires = "call")]
    record: Option<PathBuf>,

    /// A call to record: the operation and its arguments as JSON; may be given several times.
    #[arg(long, value_name = "'OP {..}'", requires = "record")]
    call: Vec<String>,

    /// The name of the recorded scenario [default: the file's].
    #[arg(long, value_name = "NAME", requires = "record")]
    name: Option<String>,

    /// A secret for the recording, instead of what is bound in the home: KIND/SERVICE=@FILE; may be given several times.
    #[arg(long, value_name = "KIND/SERVICE=@FILE", value_parser = binding, requires = "record")]
    bind: Vec<(BindingName, PathBuf)>,
}

impl RecordArgs {
    /// Returns the file, if something is to be recorded.
    pub(super) fn file(&self) -> Option<&Path> {
        self.record.as_deref()
    }
}

fn binding(text: &str) -> Result<(BindingName, PathBuf), String> {
    let form = "write it as KIND/SERVICE=@FILE, like bearer/tickets=@token";
    let (name, file) = text.split_once("=@").ok_or(form)?;
    let name = BindingName::parse(name).map_err(|error| format!("{error}; {form}"))?;
    Ok((name, PathBuf::from(file)))
}

/// The result.
#[derive(Debug, Serialize)]
struct RecordSummary {
    recorded: PathBuf,
    files: Vec<PathBuf>,
    /// True if the scenario passes as it is.
    passes: bool,
}

/// Records, writes, and runs what was recorded once.
pub(super) async fn run(
    args: &RecordArgs,
    project: &TestedProject,
    session: &Session<'_>,
) -> Result<(), CommandError> {
    let Some(path) = &args.record else { return Ok(()) };
    packaging::check_output(path)?;
    refuse_existing(path)?;
    if path.extension().is_some_and(|extension| extension != "toml") {
        let message = format!("{} is not the name of a TOML file.", files::shown(path));
        let error = HostError::new(HostErrorKind::Validation, message);
        return Err(error
            .with_hint("A recording is written as TOML: name a file that ends with .toml.")
            .into());
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let runner = project.runner(session).await?;
    let calls = args.call.iter().map(|text| call(text, &runner)).collect::<Result<_, _>>()?;
    let settings = ConfigFile::load(&session.home()?)?;
    let extra_roots = settings.extra_roots.iter().map(|path| read_roots(path)).collect::<Result<_, _>>()?;
    let network =
        RealNetwork { roots: settings.roots, extra_roots, allow_private: settings.allow_private.clone() };
    let vault = vault(args, &runner, session)?;
    let name = args.name.clone().unwrap_or_else(|| stem.clone());
    session.ui.note("calling the real service");
    let recorded = runner.record(Recording { name, stem, calls, vault, network }).await?;
    let dir = files::parent(path);
    let others: Vec<_> = recorded.files().iter().map(|file| (dir.join(&file.name), &file.bytes)).collect();
    for (other, _) in &others {
        refuse_existing(other)?;
    }
    for (other, bytes) in &others {
        files::write_whole(other, bytes)?;
    }
    files::write_whole(path, recorded.text().as_bytes())?;
    let label = files::shown(path);
    let scenarios = parse_scenarios(&label, recorded.text(), dir, runner.tested());
    let mut passes = true;
    for scenario in scenarios.map_err(files::document_error)? {
        let report = runner.run(&scenario).await;
        passes &= report.passed;
        page::print_scenario(session.ui, &report)?;
    }
    if !passes {
        session.ui.warn("the recording does not pass yet: put placeholders where values change");
    }
    let files = others.into_iter().map(|(path, _)| path).collect();
    let summary = RecordSummary { recorded: path.clone(), files, passes };
    session.ui.result(&summary, |page| {
        page.field("recorded", &label);
    })
}

fn refuse_existing(path: &Path) -> Result<(), HostError> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(_) => {
            let message = format!("{} exists already; a recording overwrites nothing.", files::shown(path));
            Err(HostError::new(HostErrorKind::Conflict, message).with_hint("Name another file."))
        }
    }
}

/// Reads a call: the operation, and its arguments if there are any.
fn call(text: &str, runner: &TestRunner) -> Result<(String, Map<String, Value>), HostError> {
    let wrong = |message: String, hint: &str| {
        HostError::new(HostErrorKind::Validation, message).with_hint(hint.to_owned())
    };
    let (name, args) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), "{}"));
    let operations = runner.tested().operations();
    let snake = name.replace('-', "_");
    if !operations.contains(&snake) {
        let near = suggest::nearest(&snake, operations.iter().map(String::as_str));
        let hint = match near {
            Some(near) => format!("Did you mean `{near}`?"),
            None => format!("It has: {}.", operations.join(", ")),
        };
        return Err(wrong(format!("The connector has no operation {}.", quoted(name)), &hint));
    }
    match strict_json::parse(args.trim().as_bytes()) {
        Ok(Value::Object(args)) => Ok((snake, args)),
        _ => Err(wrong(
            format!("The arguments of {name} are not a JSON object."),
            "Write the call like 'get_issue {\"number\": 7}'.",
        )),
    }
}

/// Returns the credentials: those that were given, or else those of the home.
fn vault(
    args: &RecordArgs,
    runner: &TestRunner,
    session: &Session<'_>,
) -> Result<Arc<dyn Vault>, CommandError> {
    let manifest = runner.tested().manifest();
    if args.bind.is_empty() && !manifest.credentials().is_empty() {
        let (_, vault) = session.host_and_vault()?;
        return Ok(vault.shared());
    }
    let mut bindings = Vec::new();
    for (name, path) in &args.bind {
        let grants = manifest.credentials();
        let grant = grants.iter().find(|it| it.kind() == name.kind() && it.service() == name.service());
        let grant = grant.ok_or_else(|| {
            let asked: Vec<_> = grants.iter().map(|grant| grant.label()).collect();
            let message = format!("The manifest asks for no credential {name}.");
            let hint = format!("It asks for: {}.", asked.join(", "));
            HostError::new(HostErrorKind::Validation, message).with_hint(hint)
        })?;
        let secret = files::read_private("The secret's file", path)?;
        let binding =
            test_binding(grant, manifest.name(), name.identity(), secret.trim_end_matches(['\r', '\n']));
        bindings.push(binding.map_err(|error| {
            HostError::new(HostErrorKind::Validation, format!("{}: {}.", files::shown(path), error.message()))
                .with_hint(error.fix().to_owned())
        })?);
    }
    Ok(Arc::new(MemoryVault::new(bindings)))
}
