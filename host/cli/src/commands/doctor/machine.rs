//! The checks of the machine: clock, ports, the compile worker, the terminal.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime};

use cofferdam_core::error::HostError;
use jiff::Timestamp;

use super::Check;
use crate::files;
use crate::session::Session;

/// No release of this program is older.
const EARLIEST: &str = "2025-01-01T00:00:00Z";

/// The difference to the clock of another machine that is not worth a word.
const TOLERANCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Columns that most tables need.
const COLUMNS: u16 = 60;

/// The smallest component: it has no operation, which the worker has to find out.
const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// Checks the machine.
pub(super) async fn check(session: &Session<'_>) -> Vec<Check> {
    vec![clock(session).await, loopback(), compiler(session).await, terminal()]
}

async fn clock(session: &Session<'_>) -> Check {
    const NAME: &str = "clock";
    const FIX: &str = "Set the clock, or have it set from the network.";
    let now = SystemTime::now();
    let shown = Timestamp::try_from(now).map(|now| format!("{now:.0}")).unwrap_or_default();
    let earliest = EARLIEST.parse::<Timestamp>().ok().map(SystemTime::from);
    if earliest.is_some_and(|earliest| now < earliest) {
        return Check::bad(NAME, format!("{shown} is before this program was made"), FIX);
    }
    let home = session.home().ok().filter(|home| home.exists());
    if let Some(home) = &home
        && newest(home).is_some_and(|file| file > now + TOLERANCE)
    {
        return Check::bad(NAME, format!("{shown} is before the newest file of the home"), FIX);
    }
    let has_log = home.is_some_and(|home| home.join("audit").exists());
    if has_log && let Ok(host) = session.host() {
        match host.audit().time().await {
            Ok(time) if time.is_believed => {}
            Ok(time) => {
                let found = format!("{shown} is more than a day from the audit log's {:.0}", time.time);
                return Check::doubtful(
                    NAME,
                    found,
                    "If the clock is right: `cofferdam audit clock --accept`.",
                );
            }
            Err(error) => return Check::of(NAME, true, Err(error)),
        }
    }
    Check::good(NAME, shown)
}

/// Returns the time of the newest file in the home directory itself.
fn newest(home: &Path) -> Option<SystemTime> {
    fs::read_dir(home).ok()?.flatten().filter_map(|entry| entry.metadata().ok()?.modified().ok()).max()
}

fn loopback() -> Check {
    const NAME: &str = "ports";
    let connected = || -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        TcpStream::connect_timeout(&listener.local_addr()?, Duration::from_secs(5)).map(drop)
    };
    match connected() {
        Ok(()) => Check::good(NAME, "a port of 127.0.0.1 can be opened and reached"),
        Err(error) => Check::bad(
            NAME,
            format!("no port of 127.0.0.1 can be used: {}", files::reason(&error)),
            "Allow this user loopback connections: `test`, `dev`, `serve` and logins by browser need them.",
        ),
    }
}

async fn compiler(session: &Session<'_>) -> Check {
    const NAME: &str = "compiler";
    let parsed = async { session.parser()?.operations(EMPTY_COMPONENT.to_vec()).await };
    let result: Result<_, HostError> = parsed.await;
    match result {
        Err(error) if !matches!(error.kind(), cofferdam_core::error::HostErrorKind::Validation) => {
            Check::of(NAME, true, Err(error))
        }
        _ => Check::good(NAME, "the compile worker runs"),
    }
}

fn terminal() -> Check {
    const NAME: &str = "terminal";
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Check::good(NAME, "none: nothing is asked");
    }
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map(|size| size.ws_col).unwrap_or_default();
    match columns {
        1..COLUMNS => Check::doubtful(
            NAME,
            format!("{columns} columns"),
            format!("Give it {COLUMNS}, so that fewer lines are wrapped."),
        ),
        _ => Check::good(NAME, format!("{columns} columns")),
    }
}
