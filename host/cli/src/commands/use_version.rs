//! `use`: makes an installed version the active one of its name.

use cofferdam_core::error::Error;
use cofferdam_runtime::host::{Activated, Host};

use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::session::{Session, resolve};

const EXAMPLES: &str = "\
A connector's name without a version resolves to its active version: in `cofferdam call`, in requests to servers, and \
in the tools of agents. Installing a new version makes it the active one. Running calls end with the version that they \
began with, and references with a version are not affected.

Examples:
  cofferdam use github://acme/slack@1.2.0
  cofferdam rollback github://acme/slack";

/// Makes an installed version the active one of its name.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The version: NAME@VERSION.
    #[arg(value_name = "CONNECTOR")]
    connector: String,
}

/// Switches the active version.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let host = session.host()?;
    let connector = resolve(&host, &args.connector)?;
    let activated = host.activate(&connector)?;
    show(&activated, &host, session)
}

/// Shows the version that is active now, and warns if calls of it fail.
pub(super) fn show(activated: &Activated, host: &Host, session: &Session<'_>) -> Result<(), CommandError> {
    let verified =
        resolve(host, &activated.name).map_err(Error::from).and_then(|active| host.package(&active));
    if let Err(error) = verified {
        session.ui.warn(&format!("calls of it fail: {error}"));
    }
    session.ui.result(activated, |it| page(activated, it))
}

fn page(activated: &Activated, page: &mut Page) {
    page.styled_field("active", TextStyle::Good, &format!("{}@{}", activated.name, activated.version));
    page.field("before", activated.replaces.as_deref().unwrap_or("the same version"));
}
