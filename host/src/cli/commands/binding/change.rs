//! `binding allow` and `binding revoke`: who may use a binding, and its end.

use std::io::{IsTerminal as _, Write as _};

use super::{Name, changed, connector, grants, host};
use crate::cli::report::Stop;
use crate::cli::session::Session;
use crate::error::{HostError, HostErrorKind};
use crate::manifest::{ConnectorName, HostGrant};
use crate::vault::BindingName;

const ALLOW_EXAMPLES: &str = "\
Without --host, the binding may go to the hosts that the installed connector asks for, besides \
where it may go now. No connector sends it anywhere that its own manifest does not name.

Examples:
  cofferdam binding allow bearer/slack/work --connector github://acme/slack-admin
  cofferdam binding allow bearer/slack/work --host files.slack.com:443";

/// Lets another connector use a binding, or the binding go to another host.
#[derive(Debug, clap::Args)]
#[command(after_help = ALLOW_EXAMPLES)]
pub(in crate::cli) struct AllowArgs {
    /// The binding.
    #[arg(value_name = "NAME", value_parser = Name, hide_possible_values = true)]
    name: BindingName,

    /// The connector.
    #[arg(long, value_name = "CONNECTOR", value_parser = connector, required_unless_present = "host")]
    connector: Option<ConnectorName>,

    /// A host that the binding may go to besides; may be given several times.
    #[arg(long, value_name = "HOST:PORT", value_parser = host)]
    host: Vec<HostGrant>,
}

const REVOKE_EXAMPLES: &str = "\
The secret itself stays valid wherever else somebody has it: have its issuer revoke it, too.

Examples:
  cofferdam binding revoke bearer/slack/work
  cofferdam binding revoke bearer/slack/work --yes";

/// Removes a binding and its secret.
#[derive(Debug, clap::Args)]
#[command(after_help = REVOKE_EXAMPLES)]
pub(in crate::cli) struct RevokeArgs {
    /// The binding.
    #[arg(value_name = "NAME", value_parser = Name, hide_possible_values = true)]
    name: BindingName,

    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
}

/// Allows.
pub(super) fn allow(args: &AllowArgs, session: &Session<'_>) -> Result<(), Stop> {
    let (host, _) = session.host_and_vault()?;
    // First: a binding that is not there needs no hosts.
    host.binding(&args.name)?;
    let hosts = match &args.connector {
        Some(connector) if args.host.is_empty() => grants::hosts_of(&host, &args.name, connector)?,
        _ => args.host.clone(),
    };
    changed("allowed", &host.allow_binding(&args.name, args.connector.as_ref(), &hosts)?, session)
}

/// Revokes.
pub(super) fn revoke(args: &RevokeArgs, session: &Session<'_>) -> Result<(), Stop> {
    let (host, _) = session.host_and_vault()?;
    let binding = host.binding(&args.name)?;
    if !args.yes && !confirmed(&format!("Remove {} and its secret? [y/N] ", binding.name))? {
        session.ui.note("Nothing was changed.");
        return Ok(());
    }
    changed("revoked", &host.revoke_binding(&args.name)?, session)
}

/// Asks at the terminal; elsewhere nobody could answer.
fn confirmed(question: &str) -> Result<bool, HostError> {
    if !std::io::stdin().is_terminal() {
        let message = "Nobody is there to confirm it; nothing was changed.";
        return Err(HostError::new(HostErrorKind::Validation, message).hint("Add --yes."));
    }
    let mut err = anstream::stderr().lock();
    drop(err.write_all(question.as_bytes()).and_then(|()| err.flush()));
    let mut answer = String::new();
    drop(std::io::stdin().read_line(&mut answer));
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
