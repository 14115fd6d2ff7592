//! `mcp config`: the configuration with which MCP clients start or reach the server.

use clap::Parser as _;
use cofferdam_core::error::{HostError, HostErrorKind};
use serde_json::{Value, json};

use super::clients::{McpClient, MergedConfig, ServerEntry};
use crate::args::Cli;
use crate::report::CommandError;
use crate::session::Session;
use crate::{files, passphrase};

const EXAMPLES: &str = "\
The arguments after `--` are the options of `cofferdam mcp` that the client is to start it with.

Examples:
  cofferdam mcp config --client claude-code -- --operations slack
  cofferdam mcp config --client vscode --write -- --all-operations --read-only
  cofferdam mcp config --client cursor --url http://127.0.0.1:4101/mcp";

/// Longest configuration of a client that is read, in bytes.
const CONFIG_BYTES: u64 = 4 * 1024 * 1024;

/// Prints, or writes, the configuration of an MCP client.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The client of the configuration.
    #[arg(long, value_enum, value_name = "CLIENT")]
    client: McpClient,

    /// Adds it to the client's file, of which everything else stays as it is, instead of printing it. A server
    /// `cofferdam` with another entry stays, unless it is to be replaced.
    #[arg(long)]
    write: bool,

    /// Replaces the server `cofferdam` of the client's file, with all that was set there by hand.
    #[arg(long, requires = "write")]
    replace: bool,

    /// The address of a server that runs already, instead of one that the client starts. Its token is not written:
    /// the client takes it from COFFERDAM_MCP_TOKEN, or asks. Zed does neither: write it in the place of TOKEN.
    #[arg(long, value_name = "URL", conflicts_with = "args", value_parser = url)]
    url: Option<String>,

    /// The options with which the client starts `cofferdam mcp`.
    #[arg(last = true, value_name = "OPTION")]
    args: Vec<String>,
}

/// Prints it, or writes it.
pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), CommandError> {
    let entry = match &args.url {
        Some(url) => ServerEntry::Remote { url: url.clone() },
        None => local(args, session)?,
    };
    let (client, home) = (args.client, user_home());
    if !args.write {
        session.ui.raw(client.snippet(&entry)?.as_bytes())?;
        session.ui.note(&format!("It belongs into {}.", client.place()));
        note_token(client, &entry, session);
        return Ok(());
    }
    let path = client.path(home.as_deref())?;
    // A symbolic link stays one: only its target is replaced.
    let path = match path.is_symlink() {
        true => path
            .canonicalize()
            .map_err(|error| files::unreadable("The client's configuration", &path, error))?,
        false => path,
    };
    let before = match files::read_if_there("The client's configuration", &path)? {
        Some(bytes) if bytes.len() as u64 <= CONFIG_BYTES => {
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        Some(_) => return Err(unusable(&files::shown(&path), "is too large").into()),
        None => None,
    };
    let file = files::shown(&path);
    let merged =
        client.merged(before.as_deref(), &entry, args.replace).map_err(|why| unusable(&file, why))?;
    if let Some(after) = merged.text() {
        std::fs::create_dir_all(files::parent(&path)).map_err(|error| files::unwritable(&path, error))?;
        files::write_whole(&path, after.as_bytes())?;
    }
    let done = merged.done();
    if session.ui.json() {
        session.ui.line_of_json(&json!({"file": file, "done": done}))?;
    }
    session.ui.note(&match merged {
        MergedConfig::AsItWas => format!("{file} has it already; nothing was written."),
        _ => format!("{file}: {done}. Restart the client."),
    });
    note_token(client, &entry, session);
    Ok(())
}

/// Prints the note for clients that cannot read the token from elsewhere.
fn note_token(client: McpClient, entry: &ServerEntry, session: &Session<'_>) {
    if client == McpClient::Zed && matches!(entry, ServerEntry::Remote { .. }) {
        session.ui.note("Zed takes a token from nowhere else: write it in the place of TOKEN.");
    }
}

/// The address of a server.
fn url(text: &str) -> Result<String, String> {
    let parsed = url::Url::parse(text).ok();
    let good = parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if good { Ok(text.to_owned()) } else { Err("write it like http://127.0.0.1:4101/mcp".to_owned()) }
}

fn local(args: &Args, session: &Session<'_>) -> Result<ServerEntry, CommandError> {
    // The client would not show why its server fails to start.
    let line = ["cofferdam", "mcp"].into_iter().chain(args.args.iter().map(String::as_str));
    if let Err(error) = Cli::try_parse_from(line) {
        let message = format!(
            "`cofferdam mcp` cannot be started so: {}",
            error.to_string().lines().next().unwrap_or_default()
        );
        return Err(HostError::new(HostErrorKind::Validation, message)
            .with_hint("`cofferdam mcp --help` has its options.")
            .into());
    }
    let program = std::env::current_exe().map_err(|error| {
        HostError::new(HostErrorKind::Configuration, "The path of this program cannot be found out.")
            .with_source(error)
    })?;
    Ok(ServerEntry::Local {
        command: program.to_string_lossy().into_owned(),
        args: std::iter::once("mcp".to_owned()).chain(args.args.iter().cloned()).collect(),
        env: env(session)?,
    })
}

/// Returns the environment of the server that the client starts: the settings of this command, without secrets.
fn env(session: &Session<'_>) -> Result<Vec<(String, String)>, CommandError> {
    let mut env = vec![("COFFERDAM_HOME".to_owned(), session.home()?.to_string_lossy().into_owned())];
    if let Some(path) = session.passphrase_file() {
        let path = std::path::absolute(path).map_err(|error| files::unreadable("The file", path, error))?;
        env.push(("COFFERDAM_VAULT_PASSPHRASE_FILE".to_owned(), path.to_string_lossy().into_owned()));
    }
    if let Some(hosts) = std::env::var("COFFERDAM_ALLOW_PRIVATE").ok().filter(|hosts| !hosts.is_empty()) {
        env.push(("COFFERDAM_ALLOW_PRIVATE".to_owned(), hosts));
    }
    if std::env::var_os(passphrase::VARIABLE).is_some_and(|text| !text.is_empty()) {
        session.ui.warn(
            "The passphrase in COFFERDAM_VAULT_PASSPHRASE is not written: give the client's server a file with --passphrase-file.",
        );
    }
    Ok(env)
}

fn user_home() -> Option<std::path::PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(Into::into)
}

fn unusable(path: &str, why: &str) -> HostError {
    let message = format!("{path} {why}, so nothing was written.");
    HostError::new(HostErrorKind::Validation, message).with_hint(match why {
        super::clients::ANOTHER => "Add --replace to replace it, with all that was set there by hand.",
        _ => "Leave out --write, and put what is printed there by hand.",
    })
}

/// The entry as JSON text.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
