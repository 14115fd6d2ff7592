//! `mcp config`: how MCP clients are told to start or reach the server, printed or written where they read it.

use clap::Parser as _;
use serde_json::Value;

use super::clients::{Client, Entry};
use crate::cli::args::Cli;
use crate::cli::files;
use crate::cli::report::Stop;
use crate::cli::session::Session;
use crate::error::{HostError, HostErrorKind};

const EXAMPLES: &str = "\
What stands after `--` are the options of `cofferdam mcp` that the client is to start it with.

Examples:
  cofferdam mcp config --client claude-code -- --operations slack
  cofferdam mcp config --client vscode --write -- --all-operations --read-only
  cofferdam mcp config --client cursor --url http://127.0.0.1:4100/mcp";

/// Longest configuration of a client that is read, in bytes.
const CONFIG_BYTES: u64 = 4 * 1024 * 1024;

/// Prints, or writes, the configuration of an MCP client.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Whose configuration it is.
    #[arg(long, value_enum, value_name = "CLIENT")]
    client: Client,

    /// Adds it to the client's file, of which everything else stays as it is, instead of printing it.
    #[arg(long)]
    write: bool,

    /// The address of a server that runs already, instead of one that the client starts. Its token is not written:
    /// the client takes it from COFFERDAM_MCP_TOKEN, or asks.
    #[arg(long, value_name = "URL", conflicts_with = "args")]
    url: Option<String>,

    /// What the client starts `cofferdam mcp` with.
    #[arg(last = true, value_name = "OPTION")]
    args: Vec<String>,
}

/// Prints it, or writes it.
pub(super) fn run(args: &Args, session: &Session<'_>) -> Result<(), Stop> {
    let entry = match &args.url {
        Some(url) => Entry::Remote { url: url.clone() },
        None => local(args, session)?,
    };
    let (client, home) = (args.client, user_home());
    if !args.write {
        session.ui.raw(client.snippet(&entry)?.as_bytes())?;
        session.ui.note(&format!("It belongs into {}.", client.place()));
        return Ok(());
    }
    let path = client.path(home.as_deref())?;
    let before = match files::read_if_there("The client's configuration", &path)? {
        Some(bytes) if bytes.len() as u64 <= CONFIG_BYTES => {
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        Some(_) => return Err(unusable(&files::shown(&path), "is too large").into()),
        None => None,
    };
    let after =
        client.merged(before.as_deref(), &entry).map_err(|why| unusable(&files::shown(&path), why))?;
    std::fs::create_dir_all(files::parent(&path)).map_err(|error| files::unwritable(&path, error))?;
    files::write_whole(&path, after.as_bytes())?;
    session.ui.note(&format!("{} has it. Restart the client.", files::shown(&path)));
    Ok(())
}

fn local(args: &Args, session: &Session<'_>) -> Result<Entry, Stop> {
    // What is not understood would be found out by the client, which shows nobody why.
    let line = ["cofferdam", "mcp"].into_iter().chain(args.args.iter().map(String::as_str));
    if let Err(error) = Cli::try_parse_from(line) {
        let message = format!(
            "`cofferdam mcp` cannot be started so: {}",
            error.to_string().lines().next().unwrap_or_default()
        );
        return Err(HostError::new(HostErrorKind::Validation, message)
            .hint("`cofferdam mcp --help` has its options.")
            .into());
    }
    let program = std::env::current_exe().map_err(|error| {
        HostError::new(HostErrorKind::Configuration, "The path of this program cannot be found out.")
            .because(error)
    })?;
    Ok(Entry::Local {
        command: program.to_string_lossy().into_owned(),
        args: std::iter::once("mcp".to_owned()).chain(args.args.iter().cloned()).collect(),
        home: session.home()?.to_string_lossy().into_owned(),
    })
}

fn user_home() -> Option<std::path::PathBuf> {
    std::env::var_os("HOME").filter(|home| !home.is_empty()).map(Into::into)
}

fn unusable(path: &str, why: &str) -> HostError {
    let message = format!("{path} {why}, so nothing was written.");
    HostError::new(HostErrorKind::Validation, message)
        .hint("Leave out --write, and put what is printed there by hand.")
}

/// The entry as JSON text.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}
