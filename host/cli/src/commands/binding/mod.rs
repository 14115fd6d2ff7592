//! `binding`: which secret stands for which credential, where it may go and who may use it.

mod change;
mod grants;
mod lock;
mod material;
mod set;
mod show;

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use cofferdam_egress::vault::BindingName;
use cofferdam_model::manifest::{ConnectorName, CredentialKind, HostGrant};
use cofferdam_runtime::host::BindingView;
use serde::Serialize;

use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::session::Session;

/// Binds secrets to connectors: which secret, where it may go, and who may use it.
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

/// What was changed.
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
            .warn("One of its hosts is reached in the clear: whoever is on the way can read the secret.");
    }
    session.ui.result(&BindingChange { change, binding }, || {
        let mut page = Page::default();
        page.styled_field(change, TextStyle::Good, &binding.name);
        fields(&mut page, binding);
        page
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

/// Reads a binding's name, and tells shells how names begin. What stands in its place by mistake may be a
/// secret: it is not repeated.
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
