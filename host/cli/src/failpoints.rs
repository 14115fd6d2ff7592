//! Fail points from the environment, in a build that has them: never one for production.

use std::process::ExitCode;

use cofferdam_core::failpoint;

use super::exit_codes::USAGE;

/// The variable in which tests name the armed failpoints.
const VARIABLE: &str = "COFFERDAM_FAILPOINTS";

/// Arms what the environment names; the exit code where that is not understood.
pub(super) fn arm() -> Option<ExitCode> {
    let text = std::env::var(VARIABLE).ok()?;
    let wrong = failpoint::arm(&text).err()?;
    let places = failpoint::NAMES.join(", ");
    let text = format!("{VARIABLE}: {wrong}. There are: {places}");
    super::ui::err_line("error: ", anstyle::Style::new(), &text);
    Some(ExitCode::from(USAGE))
}
