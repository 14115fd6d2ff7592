//! `run --dry-run`: what each step would do, for people and for programs.

use cofferdam_core::failure::RepeatRule;
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::flow::{DryCall, DryRun, DryStep, RunRequest};
use cofferdam_runtime::host::{AccessDecision, AccessQuery, Host};
use serde::Serialize;
use serde_json::Value;

use crate::exit_codes::exit_code;
use crate::layout::{Page, TextStyle};
use crate::report::{CommandError, exit_after};
use crate::runtime;
use crate::session::Session;

/// Shows it. The exit code is that of the first step that would not be begun.
pub(super) fn show(
    name: &str,
    run: &RunRequest,
    host: &Host,
    session: &Session<'_>,
) -> Result<(), CommandError> {
    let dry = runtime::block_on_with(host, async { Ok(host.dry_run_action(name, run).await?) })?;
    let (beyond_reach, asking) = check_reach(name, host)?;
    let plan = DryRunView { dry, beyond_reach, asking };
    let printed = session.ui.result(&plan, |it| page(&plan, it));
    session.ui.note("Nothing was run.");
    exit_after(printed, plan.dry.steps.iter().find_map(|step| step.error.as_deref()).map(exit_code))
}

/// The steps of the dry run, and the hosts that would be denied.
#[derive(Serialize)]
struct DryRunView {
    #[serde(flatten)]
    dry: DryRun,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    beyond_reach: Vec<UnreachableHost>,
    /// The connectors whose manifests ask for a credential.
    #[serde(skip)]
    asking: Vec<String>,
}

/// A host that a connector may reach by its manifest and the action, and not by the operator's settings.
#[derive(Serialize)]
struct UnreachableHost {
    connector: String,
    host: String,
    code: &'static str,
    fix: String,
}

/// Returns the hosts of the action that the operator's settings deny (no name is resolved), and the connectors that ask
/// for a credential.
fn check_reach(name: &str, host: &Host) -> Result<(Vec<UnreachableHost>, Vec<String>), CommandError> {
    let (mut beyond, mut asking) = (Vec::new(), Vec::new());
    for required in host.action(name)?.requires() {
        let connector = ConnectorRef::new(required.connector().clone(), required.version().clone());
        if host.package(&connector).is_ok_and(|package| !package.manifest().credentials().is_empty()) {
            asking.push(connector.to_string());
        }
        for grant in required.scope().hosts() {
            let Ok(access) = AccessQuery::parse(&grant.to_string()) else { continue };
            // A connector that cannot be asked is the problem of its steps.
            if let Ok(AccessDecision::Denied(denial)) = host.why(&connector, &access, Some(required.scope()))
            {
                beyond.push(UnreachableHost {
                    connector: connector.to_string(),
                    host: grant.to_string(),
                    code: denial.code().name(),
                    fix: denial.suggestion(),
                });
            }
        }
    }
    Ok((beyond, asking))
}

fn page(plan: &DryRunView, page: &mut Page) {
    let dry = &plan.dry;
    page.field("action", &dry.action);
    page.field("time", &shown(dry.wall_ms));
    for (name, value) in &dry.arguments {
        page.field("argument", &format!("{name} = {value}"));
    }
    for (step, n) in dry.steps.iter().zip(1..) {
        page.heading(&format!("{n}. {}", step.id));
        add(page, step, &plan.asking);
    }
    for UnreachableHost { connector, host, code, fix } in &plan.beyond_reach {
        page.styled_field(
            "denied",
            TextStyle::Doubtful,
            &format!("{host}, if {connector} asks there ({code})"),
        );
        page.field("fix", fix);
    }
}

fn add(page: &mut Page, step: &DryStep, asking: &[String]) {
    // A missing binding is shown as a problem.
    add_call(page, "calls", &step.call, if step.problem.is_some() { &[] } else { asking });
    match step.once {
        None if step.repeat == RepeatRule::UnlessUnkeyed => page.field(
            "again",
            "not declared idempotent: repeated until it sends a request that may take effect twice",
        ),
        None => page.field("again", "may be repeated"),
        Some(once) => page.field("again", &format!("must not be repeated, {}", once.description())),
    };
    if let Some(key) = &step.idempotency_key {
        page.field("key", key);
    }
    for call in &step.fallback {
        add_call(page, "or else", call, if call.problem.is_some() { &[] } else { asking });
        add_problem(page, call.problem.as_ref());
    }
    add_problem(page, step.problem.as_ref());
}

fn add_problem(page: &mut Page, problem: Option<&Value>) {
    if let Some(problem) = problem {
        let text = |name: &str| problem.pointer(&format!("/error/{name}")).and_then(Value::as_str);
        page.styled_field("problem", TextStyle::Bad, text("message").unwrap_or("it would not begin"));
        if let Some(fix) = text("details/suggestion") {
            page.field("fix", fix);
        }
    }
}

fn add_call(page: &mut Page, label: &str, call: &DryCall, asking: &[String]) {
    page.field(label, &format!("{} of {}", call.op, call.connector));
    for (name, value) in &call.inputs {
        let unknown = if call.unknown.iter().any(|known| known == name) { "  (known then)" } else { "" };
        page.block(2, &format!("{name} = {value}{unknown}"));
    }
    let Some(found) = &call.found else { return };
    page.field("package", &found.hash);
    let attempts = match found.attempts {
        1 => "1 attempt and no more".to_owned(),
        some => format!("{some} attempts at most"),
    };
    page.field("retries", &format!("{}, {attempts}", found.profile));
    page.field(
        "limits",
        &format!(
            "{}, fuel {}, memory {}",
            shown(found.wall_ms),
            found.fuel,
            crate::layout::bytes(found.memory_bytes)
        ),
    );
    if !found.bindings.is_empty() {
        page.field("uses", &found.bindings.join(", "));
    } else if asking.iter().any(|one| call.connector.starts_with(one.as_str())) {
        page.field(
            "uses",
            "no credential, though its manifest asks for one: none is bound that it would get",
        );
    }
    for host in &found.open_circuits {
        let what = format!("{host} is not asked now: requests there fail at once (cofferdam breaker status)");
        page.styled_field("circuit", TextStyle::Doubtful, &what);
    }
}

/// A time as people read it.
fn shown(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{ms} ms") }
}
