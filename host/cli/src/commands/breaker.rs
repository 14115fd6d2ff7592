//! `breaker`: which hosts are not asked for a while, and asking them again.

use cofferdam_egress::egress::HostPort;
use cofferdam_egress::resilience::{CauseView, CircuitView};
use cofferdam_model::manifest::ConnectorName;

use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::session::Session;

const STATUS_EXAMPLES: &str = "\
A circuit that is not listed is closed: requests pass. Breakers are off until `config.toml` or a \
retry profile switches one on.

Examples:
  cofferdam breaker status
  cofferdam breaker status --format json";

const RESET_EXAMPLES: &str = "\
A circuit that opened for a while closes by itself, when the host answers again. One that opened \
for good (a credential that was refused, a bill that is unpaid) closes when the credential is bound \
anew, or by this.

Examples:
  cofferdam breaker reset github://acme/slack
  cofferdam breaker reset --host slack.com:443
  cofferdam breaker reset --all";

/// Shows which hosts are not asked for a while because too much failed there, and has them asked again.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Status(StatusArgs),
    Reset(ResetArgs),
}

/// Shows the circuits that are open, half-open, or have failures to remember.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS_EXAMPLES)]
pub(crate) struct StatusArgs {}

/// Closes circuits, whatever opened them.
#[derive(Debug, clap::Args)]
#[command(after_help = RESET_EXAMPLES)]
#[group(id = "which", required = true, multiple = true)]
pub(crate) struct ResetArgs {
    /// Those of this connector, whatever its version.
    #[arg(value_name = "CONNECTOR", value_parser = connector)]
    connector: Option<ConnectorName>,

    /// Those at this host.
    #[arg(long, value_name = "HOST:PORT", value_parser = HostPort::parse)]
    host: Option<HostPort>,

    /// All of them.
    #[arg(long, conflicts_with_all = ["connector", "host"])]
    all: bool,
}

/// Does one of them.
pub(crate) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::Status(StatusArgs {}) => status(session),
        Command::Reset(args) => reset(&args, session),
    }
}

fn status(session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    if let Some(reason) = host.shared_state_problem() {
        session.ui.warn(&format!("these are this host's own circuits, not those of the cluster: {reason}"));
    }
    let circuits = host.circuits()?;
    session.ui.result(&circuits, |it| page(&circuits, it))?;
    if circuits.is_empty() {
        session.ui.note("Every circuit is closed.");
    }
    Ok(())
}

fn reset(args: &ResetArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let reset = session.host()?.reset_circuits(args.connector.as_ref(), args.host.as_ref())?;
    session.ui.result(&reset, |page| {
        for circuit in &reset.closed {
            page.styled_field(
                "closed",
                TextStyle::Good,
                &format!("{} at {}", circuit.connector, circuit.host),
            );
        }
        let entries = match reset.damaged_removed {
            1 => "one entry that was damaged, and counted as closed".to_owned(),
            some => format!("{some} entries that were damaged, and counted as closed"),
        };
        if reset.damaged_removed > 0 {
            page.field("removed", &entries);
        }
    })?;
    if reset.closed.is_empty() && reset.damaged_removed == 0 {
        session.ui.note("Nothing was open there. `cofferdam breaker status` shows what is.");
    }
    Ok(())
}

fn page(circuits: &[CircuitView], page: &mut Page) {
    for circuit in circuits {
        page.heading(&format!("{} at {}", circuit.connector, circuit.host));
        let tone = match circuit.state {
            "closed" => TextStyle::Good,
            "half_open" => TextStyle::Doubtful,
            _ => TextStyle::Bad,
        };
        page.styled_field("state", tone, circuit.state);
        if circuit.failures > 0 {
            page.field("failures", &circuit.failures.to_string());
        }
        if let Some(open) = &circuit.open {
            page.field("since", &open.cause.opened_at);
            page.field("because of", &because(&open.cause));
            page.field(
                "asked again",
                &match open.retry_after_ms {
                    0 if open.probe_is_out => "a probe is out: a call is trying it now".to_owned(),
                    0 => "by the next call".to_owned(),
                    ms => format!("in {} s", ms.div_ceil(1000)),
                },
            );
        }
        for shut in &circuit.open_for_good {
            let whose = match shut.bindings.as_slice() {
                [] => "requests without a credential".to_owned(),
                names => names.join(", "),
            };
            page.field("for good", &format!("{whose}, since {}", shut.cause.opened_at));
            page.field("because of", &because(&shut.cause));
        }
    }
}

fn because(cause: &CauseView) -> String {
    let status = cause.status.map(|status| format!(" (status {status})")).unwrap_or_default();
    format!("{}{status}, seen by {}", cause.cause_code, cause.cause_audit_id)
}

fn connector(text: &str) -> Result<ConnectorName, String> {
    ConnectorName::unversioned(text).map_err(|refused| refused.to_string())
}
