//! `doctor`: checks the tools, the home and the machine, and says how to mend what is wrong.

mod home;
mod machine;
mod toolchains;

use std::path::PathBuf;

use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Serialize;

use crate::exit_codes::kind_exit_code;
use crate::layout::TextStyle;
use crate::report::{CommandError, exit_after};
use crate::runtime;
use crate::session::Session;

const EXAMPLES: &str = "\
A check is good, doubtful (something that you may need later is missing) or bad. The exit code is 64 if one is bad. Tools \
of a language are needed only for a connector in that language: run it in the connector's directory. Nothing is changed.

Examples:
  cofferdam doctor
  cofferdam doctor connectors/weather
  cofferdam doctor --format json";

/// Checks toolchains, home, keys, clock and ports, and says what is wrong and how to mend it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory of a connector, whose tools are needed.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CheckStatus {
    Good,
    Doubtful,
    Bad,
}

impl CheckStatus {
    const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Doubtful => "doubtful",
            Self::Bad => "bad",
        }
    }

    const fn style(self) -> TextStyle {
        match self {
            Self::Good => TextStyle::Good,
            Self::Doubtful => TextStyle::Doubtful,
            Self::Bad => TextStyle::Bad,
        }
    }
}

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: CheckStatus,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Check {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, status: CheckStatus::Good, found: found.into(), fix: None }
    }

    fn doubtful(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, status: CheckStatus::Doubtful, found: found.into(), fix: Some(fix.into()) }
    }

    fn bad(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { status: CheckStatus::Bad, ..Self::doubtful(name, found, fix) }
    }

    /// Returns the check of something that is needed, or may be needed later.
    fn of(name: &'static str, is_needed: bool, result: Result<String, HostError>) -> Self {
        match result {
            Ok(found) => Self::good(name, found),
            Err(error) => {
                let status = if is_needed { CheckStatus::Bad } else { CheckStatus::Doubtful };
                let fix = error.hint().map(ToOwned::to_owned);
                Self { name, status, found: error.message().to_owned(), fix }
            }
        }
    }
}

/// All checks.
#[derive(Debug, Serialize)]
struct Examination {
    ok: bool,
    checks: Vec<Check>,
}

/// Checks everything, and prints a line for each.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let mut checks = toolchains::check(&args.dir);
    checks.extend(home::check(session));
    checks.extend(runtime::block_on(async { Ok(machine::check(session).await) })?);
    let ok = checks.iter().all(|check| check.status != CheckStatus::Bad);
    let examination = Examination { ok, checks };
    let printed = session.ui.result(&examination, |page| {
        for Check { name, status, found, fix } in &examination.checks {
            // A fix may quote a tool's output: here its first line is enough.
            let fix = fix.iter().filter_map(|fix| fix.lines().next()).map(|fix| format!(" {fix}"));
            let text = format!("{:<9} {found}{}", status.name(), fix.collect::<String>());
            page.styled_field(name, status.style(), &text);
        }
    });
    exit_after(printed, (!ok).then(|| kind_exit_code(HostErrorKind::Configuration)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_bad_only_if_the_thing_is_needed() {
        let missing =
            || Err(HostError::new(HostErrorKind::Tool, "It was not found.").with_hint("Install it."));
        let [needed, other] = [true, false].map(|is_needed| Check::of("python3", is_needed, missing()));
        assert_eq!((needed.status, other.status), (CheckStatus::Bad, CheckStatus::Doubtful));
        assert_eq!(needed.fix.as_deref(), Some("Install it."));
        assert_eq!(Check::of("python3", true, Ok("3.11".into())).status, CheckStatus::Good);
    }
}
