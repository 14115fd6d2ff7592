//! `binding list`, `inspect` and `test`: shows bindings, and the connectors that get them.

use cofferdam_core::failure::FailureClass;
use cofferdam_egress::vault::BindingName;
use cofferdam_runtime::host::{
    BindingInspection, BindingTest, BindingVerdict, BindingView, STALE_AFTER_DAYS, TestAnswer,
};
use serde::Serialize;

use super::{BindingNameParser, fields};
use crate::allow_private::AllowPrivate;
use crate::exit_codes::class_exit_code;
use crate::layout::{Page, TextStyle};
use crate::report::{CommandError, exit_after};
use crate::runtime;
use crate::session::Session;

const LIST_EXAMPLES: &str = "\
A binding that has not changed for 47 days is marked as stale: a reminder to rotate its secret.

Examples:
  cofferdam binding list
  cofferdam binding list --format json";

/// Lists what is bound; never a secret.
#[derive(Debug, clap::Args)]
#[command(after_help = LIST_EXAMPLES)]
pub(crate) struct ListArgs {}

const INSPECT_EXAMPLES: &str = "\
Examples:
  cofferdam binding inspect bearer/slack/work";

/// Shows everything about a binding but its secrets, and what the installed connectors would get of it.
#[derive(Debug, clap::Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub(crate) struct InspectArgs {
    /// The binding.
    #[arg(value_name = "NAME", value_parser = BindingNameParser, hide_possible_values = true)]
    name: BindingName,
}

const TEST_EXAMPLES: &str = "\
Opens the vault, obtains a token where the kind has tokens, and checks that every installed \
connector that asks for the binding would get it. With --url it sends one GET there as such a \
connector would, and shows the status of the answer and nothing else of it.

The exit code is 0 if nothing is missing, else that of what a call would fail with: binding_failed \
where the issuer refuses, binding_required where a connector would not get it, external_api_error \
where the service answers 401 or 403.

Examples:
  cofferdam binding test bearer/slack/work
  cofferdam binding test bearer/slack/work --url https://slack.com/api/auth.test";

/// Tries a binding: whether a token is given, and whether the service accepts it.
#[derive(Debug, clap::Args)]
#[command(after_help = TEST_EXAMPLES)]
pub(crate) struct TestArgs {
    /// The binding.
    #[arg(value_name = "NAME", value_parser = BindingNameParser, hide_possible_values = true)]
    name: BindingName,

    /// Sends a GET with the credential to this URL, on a host that the binding may go to.
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    #[command(flatten)]
    private: AllowPrivate,
}

/// Lists.
pub(super) fn list(ListArgs {}: ListArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let (host, _) = session.host_and_vault()?;
    let bindings = host.bindings()?;
    session.ui.result(&bindings, |page| {
        let row = |it: &BindingView| {
            let day = |moment: &str| moment.split('T').next().unwrap_or_default().to_owned();
            [it.name.clone(), status(it), it.hosts.join(", "), it.connectors.join(", "), day(&it.changed)]
        };
        if !bindings.is_empty() {
            page.table(
                ["BINDING", "STATUS", "MAY GO TO", "FOR", "CHANGED"],
                bindings.iter().map(row).collect(),
            );
        }
    })?;
    for binding in bindings.iter().filter(|binding| binding.status == "unavailable") {
        session.ui.warn(binding.refused.as_deref().unwrap_or_default());
    }
    if bindings.is_empty() {
        session.ui.note("Nothing is bound. `cofferdam binding set <kind>/<service>` binds a secret.");
    }
    Ok(())
}

/// Shows one.
pub(super) fn inspect(args: &InspectArgs, session: &Session<'_>) -> Result<(), CommandError> {
    let (host, _) = session.host_and_vault()?;
    let test = host.inspect_binding(&args.name)?;
    session.ui.result(&test, |it| page(&test, it))
}

/// Tests one.
pub(super) fn test(args: TestArgs, session: &Session<'_>) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct TestedBinding<'t> {
        usable: bool,
        #[serde(flatten)]
        test: &'t BindingTest,
    }
    let TestArgs { name, url, private } = args;
    let host = session.host_with(|builder| private.apply_to(builder))?;
    let test = runtime::block_on_with(&host, async { Ok(host.test_binding(&name, url.as_deref()).await?) })?;
    let problem = problem(&test);
    let printed = session.ui.result(&TestedBinding { usable: problem.is_none(), test: &test }, |out| {
        page(&test.inspection, out);
        if let Some(TestAnswer { connector, host, status }) = &test.answer {
            out.heading("Sent");
            out.field("to", host).field("as", connector);
            out.field("answer", &format!("status {status}"));
        }
        match problem {
            None => out.styled(TextStyle::Good, "Everything that asks for it gets it."),
            Some(_) if test.inspection.connectors.is_empty() => {
                out.styled(TextStyle::Doubtful, "No installed connector asks for it.")
            }
            Some(_) => out.styled(TextStyle::Bad, "Not everything that asks for it gets it."),
        };
        if test.answer.is_none() {
            out.line("Nothing was sent to the service: --url URL asks it whether it accepts the secret.");
        }
    });
    exit_after(printed, problem.map(class_exit_code))
}

/// Returns the failure class of a call whose connector does not get the credential.
fn problem(test: &BindingTest) -> Option<FailureClass> {
    let connectors = &test.inspection.connectors;
    let lacking = connectors.is_empty() || connectors.iter().any(|it| it.missing.is_some());
    lacking.then_some(FailureClass::BindingRequired)
}

fn status(binding: &BindingView) -> String {
    if binding.status == "unavailable" {
        return "UNAVAILABLE".into();
    }
    match (binding.refused.is_some(), binding.details.get("token_expires"), binding.stale) {
        (true, _, _) => "REFUSED".into(),
        (false, _, true) => format!("{}, stale", binding.status),
        (false, Some(expires), _) => format!("{}, token until {expires}", binding.status),
        (false, None, _) => binding.status.into(),
    }
}

fn page(test: &BindingInspection, page: &mut Page) {
    let BindingInspection { binding, connectors } = test;
    page.field("binding", &binding.name);
    match &binding.refused {
        None => page.styled_field("status", TextStyle::Good, binding.status),
        Some(why) => page.styled_field("status", TextStyle::Bad, &format!("refused by its issuer: {why}")),
    };
    if binding.stale {
        let reminder = format!(
            "unchanged for {STALE_AFTER_DAYS} days or more: rotate it with `cofferdam binding rebind {}`",
            binding.name
        );
        page.styled_field("stale", TextStyle::Doubtful, &reminder);
    }
    fields(page, binding);
    page.field("created", &binding.created);
    page.field("changed", &binding.changed);
    if !connectors.is_empty() {
        page.heading("Installed connectors that ask for it");
    }
    for BindingVerdict { connector, sent_to, missing, command } in connectors {
        page.line(connector);
        if !sent_to.is_empty() {
            page.styled_field("  sent to", TextStyle::Good, &sent_to.join(", "));
        }
        if let Some(missing) = missing {
            page.styled_field("  not sent", TextStyle::Doubtful, missing);
        }
        if let Some(command) = command {
            page.field("  allow by", command);
        }
    }
}
