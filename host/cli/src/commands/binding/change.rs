//! `binding allow`, `disallow` and `revoke`: change the users and hosts of a binding, or remove it.

use std::io::IsTerminal as _;

use clap::ArgGroup;
use cofferdam_egress::vault::BindingName;
use cofferdam_model::manifest::{ConnectorName, HostGrant};
use cofferdam_runtime::host::{BindingView, Host};

use super::{BindingNameParser, changed, connector, host};
use crate::prompt;
use crate::report::CommandError;
use crate::session::Session;

const ALLOW_EXAMPLES: &str = "\
Nothing is added but what the command names. On a terminal it asks first; elsewhere another host needs --yes. No \
connector sends the secret anywhere that its own manifest does not name.

Examples:
  cofferdam binding allow bearer/slack/work --connector github://acme/slack-admin
  cofferdam binding allow bearer/slack/work --host files.slack.com:443";

/// Lets another connector use a binding, or the binding go to another host.
#[derive(Debug, clap::Args)]
#[command(after_help = ALLOW_EXAMPLES)]
pub(crate) struct AllowArgs {
    #[command(flatten)]
    change: BindingEntryArgs,

    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
}

const DISALLOW_EXAMPLES: &str = "\
The last connector and the last host stay: `cofferdam binding revoke` ends a binding.

Examples:
  cofferdam binding disallow bearer/slack/work --connector github://acme/slack-admin
  cofferdam binding disallow bearer/slack/work --host files.slack.com:443";

/// Takes a connector or a host off a binding.
#[derive(Debug, clap::Args)]
#[command(after_help = DISALLOW_EXAMPLES)]
pub(crate) struct DisallowArgs {
    #[command(flatten)]
    change: BindingEntryArgs,
}

/// The binding, and the entries that are added to it or taken off it.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("entry").args(["connector", "host"]).required(true).multiple(true))]
struct BindingEntryArgs {
    /// The binding.
    #[arg(value_name = "NAME", value_parser = BindingNameParser, hide_possible_values = true)]
    name: BindingName,

    /// A connector that may use the binding.
    #[arg(long, value_name = "CONNECTOR", value_parser = connector)]
    connector: Option<ConnectorName>,

    /// A host that the binding may go to; may be given several times.
    #[arg(long, value_name = "HOST:PORT", value_parser = host)]
    host: Vec<HostGrant>,
}

const REVOKE_EXAMPLES: &str = "\
Copies of the secret itself stay valid: have its issuer revoke it, too.

Examples:
  cofferdam binding revoke bearer/slack/work
  cofferdam binding revoke bearer/slack/work --yes";

/// Removes a binding and its secret.
#[derive(Debug, clap::Args)]
#[command(after_help = REVOKE_EXAMPLES)]
pub(crate) struct RevokeArgs {
    /// The binding.
    #[arg(value_name = "NAME", value_parser = BindingNameParser, hide_possible_values = true)]
    name: BindingName,

    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
}

/// Allows.
pub(super) fn allow(args: &AllowArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let BindingEntryArgs { name, connector, host: hosts } = &args.change;
    let (host, _) = session.host_and_vault()?;
    host.check_bindings_editable()?;
    let binding = host.binding(name)?;
    let added: Vec<_> =
        hosts.iter().map(ToString::to_string).filter(|it| !binding.hosts.contains(it)).collect();
    let question = question(&binding, connector.as_ref(), &added);
    let asks = !args.yes && (std::io::stdin().is_terminal() || !added.is_empty());
    if let (true, Some(question)) = (asks, question)
        && !prompt::confirm(&question, "Add --yes.")?
    {
        session.ui.note("Nothing was changed.");
        return Ok(());
    }
    changed("allowed", &host.allow_binding(name, connector.as_ref(), hosts)?, session)?;
    note_lacking(&host, name, connector.as_ref(), session)
}

/// The question before a binding is widened; none where everything is listed already.
fn question(binding: &BindingView, connector: Option<&ConnectorName>, hosts: &[String]) -> Option<String> {
    let connector = connector.map(ToString::to_string).filter(|it| !binding.connectors.contains(it));
    let uses = connector.map(|connector| format!("{connector} use {}", binding.name));
    let goes = (!hosts.is_empty()).then(|| format!("{} go to {}", binding.name, hosts.join(", ")));
    let both: Vec<_> = uses.into_iter().chain(goes).collect();
    (!both.is_empty()).then(|| format!("Let {}? [y/N] ", both.join(", and ")))
}

/// Names the hosts that the connector asks for and does not get: they were not in the command.
fn note_lacking(
    host: &Host,
    name: &BindingName,
    connector: Option<&ConnectorName>,
    session: &Session<'_>,
) -> Result<(), CommandError> {
    let Some(connector) = connector else { return Ok(()) };
    let of = format!("{connector}@");
    for verdict in host.inspect_binding(name)?.connectors.iter().filter(|it| it.connector.starts_with(&of)) {
        if let (Some(missing), Some(command)) = (&verdict.missing, &verdict.command) {
            session.ui.note(&format!("{}: {missing}. To allow it: {command}", verdict.connector));
        }
    }
    Ok(())
}

/// Takes off.
pub(super) fn disallow(args: &DisallowArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let BindingEntryArgs { name, connector, host: hosts } = &args.change;
    let (host, _) = session.host_and_vault()?;
    host.check_bindings_editable()?;
    changed("disallowed", &host.disallow_binding(name, connector.as_ref(), hosts)?, session)
}

/// Revokes.
pub(super) fn revoke(args: &RevokeArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let (host, _) = session.host_and_vault()?;
    host.check_bindings_editable()?;
    let binding = host.binding(&args.name)?;
    if !args.yes
        && !prompt::confirm(&format!("Remove {} and its secret? [y/N] ", binding.name), "Add --yes.")?
    {
        session.ui.note("Nothing was changed.");
        return Ok(());
    }
    changed("revoked", &host.revoke_binding(&args.name)?, session)
}
