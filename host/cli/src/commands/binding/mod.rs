//! `binding`: the secret of each credential, its hosts and the connectors that may use it.

mod change;
mod grants;
mod lock;
mod material;
mod set;
mod show;

use std::ffi::OsStr;
use std::path::Path;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use cofferdam_core::error::{Error, HostError};
use cofferdam_egress::vault::{BindingName, SecretMaterial};
use cofferdam_model::manifest::{ConnectorName, CredentialKind, HostGrant};
use cofferdam_runtime::host::{BindingView, Host};
use serde::Serialize;

use crate::files;
use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::secrets::SecretSourceArgs;
use crate::session::Session;

/// Binds secrets to connectors: the secret, its hosts, and the connectors that may use it.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Set(set::SetArgs),
    List(show::ListArgs),
    Inspect(show::InspectArgs),
    Test(show::TestArgs),
    Rebind(set::RebindArgs),
    Allow(change::AllowArgs),
    Disallow(change::DisallowArgs),
    Revoke(change::RevokeArgs),
    Lock(lock::Args),
}

/// Does one of them.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::Set(args) => set::set(args, session),
        Command::List(args) => show::list(args, session),
        Command::Inspect(args) => show::inspect(&args, session),
        Command::Test(args) => show::test(args, session),
        Command::Rebind(args) => set::rebind(args, session),
        Command::Allow(args) => change::allow(&args, session),
        Command::Disallow(args) => change::disallow(&args, session),
        Command::Revoke(args) => change::revoke(&args, session),
        Command::Lock(args) => lock::run(&args, session),
    }
}

/// Reads the secret of a binding from a file that its owner alone can read; for a kind with several parts, all of them.
pub(crate) fn material_from_file(
    name: &BindingName,
    username: Option<String>,
    path: &Path,
    session: &Session<'_>,
) -> Result<SecretMaterial, CommandError> {
    let parts = material::PublicPartArgs::with_username(username);
    let material = material::read(name, parts, None, &SecretSourceArgs::from_file(path), session);
    let file = files::shown(path);
    material.map_err(|error| match error {
        CommandError::Error(Error::Host(error)) if !error.message().contains(&file) => {
            error.map_message(|message| format!("{file}: {message}")).into()
        }
        other => other,
    })
}

/// Returns the hosts and the connectors of a new binding, as the installed connector declares them.
pub(crate) fn declared_grants(
    host: &Host,
    name: &BindingName,
) -> Result<(Vec<HostGrant>, Vec<ConnectorName>), HostError> {
    Ok(grants::decide(host, name, Vec::new(), Vec::new())?.into_parts())
}

/// The change.
#[derive(Serialize)]
struct BindingChange<'b> {
    change: &'static str,
    binding: &'b BindingView,
}

/// Prints a change and the binding as it is now.
fn changed(change: &'static str, binding: &BindingView, session: &Session<'_>) -> Result<(), CommandError> {
    if change != "revoked" && binding.hosts.iter().any(|host| host.starts_with("http://")) {
        session
            .ui
            .warn("One of its hosts is reached in the clear: others on the network can read the secret.");
    }
    session.ui.result(&BindingChange { change, binding }, |page| {
        page.styled_field(change, TextStyle::Good, &binding.name);
        fields(page, binding);
    })
}

/// Everything of a binding that is no secret.
fn fields(page: &mut Page, binding: &BindingView) {
    page.field("may go to", &binding.hosts.join(", "));
    page.field("for", &binding.connectors.join(", "));
    for (label, text) in binding.details.iter().filter(|(_, text)| !text.is_empty()) {
        page.field(&label.trim_end_matches("_id").replace('_', " "), text);
    }
}

/// Parses a binding's name, and completes its kind in shells. A wrong value may be a secret, so that errors do not
/// repeat it.
#[derive(Clone)]
struct BindingNameParser;

impl TypedValueParser for BindingNameParser {
    type Value = BindingName;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        text: &OsStr,
    ) -> Result<BindingName, clap::Error> {
        let name = text.to_str().and_then(|text| BindingName::parse(text).ok());
        name.ok_or_else(|| {
            let kinds: Vec<_> = CredentialKind::ALL.iter().map(|kind| kind.name()).collect();
            let message = format!(
                "that is no binding's name: write <kind>/<service>/<identity>, like api_key/slack/work, in \
                 lower case; the kinds are {}\n",
                kinds.join(", ")
            );
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(CredentialKind::ALL.iter().map(|kind| PossibleValue::new(kind.name()))))
    }
}

fn connector(text: &str) -> Result<ConnectorName, String> {
    ConnectorName::parse(text).map_err(|refused| refused.to_string())
}

fn host(text: &str) -> Result<HostGrant, String> {
    HostGrant::parse(text).map_err(|refused| refused.to_string())
}
