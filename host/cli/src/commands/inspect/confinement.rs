//! `inspect --host`: what confines servers and the compile worker on this machine.

use cofferdam_core::confine::{Confinement, ProbeAttempt, ProcessRole, ProtectionLevel, attempts};
use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Serialize;

use crate::config_file::ConfigFile;
use crate::layout::{Page, TextStyle};
use crate::report::CommandError;
use crate::session::Session;

/// The findings of the probes.
#[derive(Serialize)]
struct ConfinementReport {
    /// True if the global option `--no-confine` turns the confinement off.
    turned_off: bool,
    roles: Vec<RoleReport>,
}

/// The walls around one role, and the attempts to leave them.
#[derive(Serialize)]
struct RoleReport {
    role: &'static str,
    #[serde(flatten)]
    walls: Confinement,
    attempts: Vec<ProbeAttempt>,
}

/// Probes and shows the confinement of each role.
pub(super) fn run(session: &Session<'_>) -> Result<(), CommandError> {
    let server = session.server_role(&ConfigFile::load(&session.home()?)?)?;
    let roles = [("serve and mcp", server), ("compile worker", ProcessRole::CompileWorker)];
    let probed = roles.into_iter().map(|(name, role)| {
        let (walls, attempts) = attempts(role).map_err(not_probed)?;
        Ok(RoleReport { role: name, walls, attempts })
    });
    let roles = probed.collect::<Result<_, HostError>>()?;
    let report = ConfinementReport { turned_off: !session.is_confined(), roles };
    session.ui.result(&report, |it| page(&report, it))
}

fn not_probed(error: std::io::Error) -> HostError {
    HostError::new(HostErrorKind::Internal, "The confinement could not be probed.").with_source(error)
}

fn page(report: &ConfinementReport, page: &mut Page) {
    page.heading("CONFINEMENT");
    if report.turned_off {
        page.styled(TextStyle::Bad, "turned off by --no-confine (or COFFERDAM_NO_CONFINE); without that:");
    }
    for role in &report.roles {
        page.heading(role.role);
        wall(page, "files (Landlock)", role.walls.files);
        wall(page, "system calls (seccomp)", role.walls.system_calls);
        for attempt in &role.attempts {
            let (tone, outcome) = match attempt.refused {
                true => (TextStyle::Good, "refused"),
                false => (TextStyle::Bad, "NOT REFUSED"),
            };
            page.styled_field(attempt.what, tone, outcome);
        }
    }
}

fn wall(page: &mut Page, name: &str, wall: ProtectionLevel) {
    let (tone, says) = match wall {
        ProtectionLevel::Holds => (TextStyle::Good, "holds"),
        ProtectionLevel::Partly => {
            (TextStyle::Doubtful, "holds in part: this kernel knows an older Landlock")
        }
        ProtectionLevel::Missing => {
            (TextStyle::Bad, "MISSING: this kernel does not have it, or does not allow it")
        }
    };
    page.styled_field(name, tone, says);
}
