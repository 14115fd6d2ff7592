//! Runs the asynchronous commands, until they end or are told to.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use super::report::Stop;
use crate::Host;
use crate::error::{HostError, HostErrorKind};

/// Runs `command`, which works with `host`, as [`block_on`] does, and then waits for credentials that are being
/// renewed: the answer of an issuer may not be had twice. A signal while it waits ends the waiting.
pub(super) fn block_on_with<T>(
    host: &Host,
    command: impl Future<Output = Result<T, Stop>>,
) -> Result<T, Stop> {
    run(command, host.settle())
}

/// Runs `command` on this thread. Ctrl-C and SIGTERM drop it, which cancels what it is doing: a guest and
/// its requests end, a child process is killed, a half-written file is gone.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T, Stop>>) -> Result<T, Stop> {
    run(command, async {})
}

/// Runs `command`, and `after` it whatever came of it.
fn run<T>(
    command: impl Future<Output = Result<T, Stop>>,
    after: impl Future<Output = ()>,
) -> Result<T, Stop> {
    let broken = |error: std::io::Error| {
        HostError::new(HostErrorKind::Internal, "The asynchronous runtime could not be started.")
            .because(error)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
    let outcome = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
        let outcome = tokio::select! {
            biased;
            _ = interrupt.recv() => Err(Stop::Interrupted),
            _ = terminate.recv() => Err(Stop::Terminated),
            outcome = command => outcome,
        };
        tokio::select! {
            biased;
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = after => {}
        }
        outcome
    });
    // A name that is still being looked up holds a thread; the process does not wait for it.
    runtime.shutdown_background();
    outcome
}
