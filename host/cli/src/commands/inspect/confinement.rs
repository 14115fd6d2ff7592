//! `inspect --host`: what confines servers and the compile worker on this machine.

use cofferdam_core::confine::{Attempt, Confinement, Role, Wall, attempts};
use cofferdam_core::error::{HostError, HostErrorKind};
use serde::Serialize;

use crate::page::{Page, Tone};
use crate::report::Stop;
use crate::session::Session;
use crate::settings::Settings;

/// The findings of the probes.
#[derive(Serialize)]
struct Report {
    /// Whether the global option `--no-confine` turns the confinement off.
    turned_off: bool,
    roles: Vec<RoleReport>,
}

/// The walls around one role, and the attempts to leave them.
#[derive(Serialize)]
struct RoleReport {
    role: &'static str,
    #[serde(flatten)]
    walls: Confinement,
    attempts: Vec<Attempt>,
}

/// Probes and shows the confinement of each role.
pub(super) fn run(session: &Session<'_>) -> Result<(), Stop> {
    let server = session.server_role(&Settings::load(&session.home()?)?)?;
    let roles = [("serve and mcp", server), ("compile worker", Role::CompileWorker)];
    let probed = roles.into_iter().map(|(name, role)| {
        let (walls, attempts) = attempts(role).map_err(not_probed)?;
        Ok(RoleReport { role: name, walls, attempts })
    });
    let roles = probed.collect::<Result<_, HostError>>()?;
    let report = Report { turned_off: !session.is_confined(), roles };
    session.ui.result(&report, || page(&report))
}

fn not_probed(error: std::io::Error) -> HostError {
    HostError::new(HostErrorKind::Internal, "The confinement could not be probed.").because(error)
}

fn page(report: &Report) -> Page {
    let mut page = Page::default();
    page.heading("CONFINEMENT");
    if report.turned_off {
        page.toned(Tone::Bad, "turned off by --no-confine (or COFFERDAM_NO_CONFINE); without that:");
    }
    for role in &report.roles {
        page.heading(role.role);
        wall(&mut page, "files (Landlock)", role.walls.files);
        wall(&mut page, "system calls (seccomp)", role.walls.system_calls);
        for attempt in &role.attempts {
            let (tone, outcome) = match attempt.refused {
                true => (Tone::Good, "refused"),
                false => (Tone::Bad, "NOT REFUSED"),
            };
            page.toned_field(attempt.what, tone, outcome);
        }
    }
    page
}

fn wall(page: &mut Page, name: &str, wall: Wall) {
    let (tone, says) = match wall {
        Wall::Holds => (Tone::Good, "holds"),
        Wall::Partly => (Tone::Doubtful, "holds in part: this kernel knows an older Landlock"),
        Wall::Missing => (Tone::Bad, "MISSING: this kernel does not have it, or does not allow it"),
    };
    page.toned_field(name, tone, says);
}
