//! Runs the asynchronous commands, until they end or are told to.

use std::future::Future;
use std::pin::pin;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::report::Stop;
use crate::Host;
use crate::call::Cancellation;
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

/// Runs `call`, which `cancellation` can end: what came of it, and which signal ended it, if one did. Then waits as
/// [`block_on_with`] does.
pub(super) fn block_on_call<T>(
    host: &Host,
    cancellation: &Cancellation,
    call: impl Future<Output = T>,
) -> Result<(T, Option<Stop>), Stop> {
    on_a_runtime(async |signals| {
        let mut call = pin!(call);
        let outcome = tokio::select! {
            biased;
            stop = signals.next() => {
                cancellation.cancel();
                (call.as_mut().await, Some(stop))
            }
            outcome = &mut call => (outcome, None),
        };
        signals.unless_told(host.settle()).await;
        Ok(outcome)
    })
}

/// Runs `command`, and `after` it whatever came of it.
fn run<T>(
    command: impl Future<Output = Result<T, Stop>>,
    after: impl Future<Output = ()>,
) -> Result<T, Stop> {
    on_a_runtime(async |signals| {
        let outcome = tokio::select! {
            biased;
            stop = signals.next() => Err(stop),
            outcome = command => outcome,
        };
        signals.unless_told(after).await;
        outcome
    })
}

/// Runs `server`, which works with `host`, on all threads until it ends. The first signal has `shutdown` begin, which
/// the server obeys; the second ends the process as it is.
#[cfg(feature = "server")]
pub(super) fn block_on_server(
    host: &Host,
    shutdown: &crate::server::Shutdown,
    server: impl Future<Output = Result<(), Stop>>,
) -> Result<(), Stop> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(broken)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new().map_err(broken)?;
        let mut server = pin!(server);
        let outcome = tokio::select! {
            biased;
            _ = signals.next() => {
                shutdown.begin();
                tokio::select! {
                    biased;
                    stop = signals.next() => return Err(stop),
                    outcome = &mut server => outcome,
                }
            }
            outcome = &mut server => outcome,
        };
        signals.unless_told(host.settle()).await;
        outcome
    });
    runtime.shutdown_background();
    outcome
}

fn broken(error: std::io::Error) -> HostError {
    HostError::new(HostErrorKind::Internal, "The asynchronous runtime could not be started.").because(error)
}

fn on_a_runtime<T>(command: impl AsyncFnOnce(&mut Signals) -> Result<T, Stop>) -> Result<T, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::new().map_err(broken)?;
        command(&mut signals).await
    });
    // A name that is still being looked up holds a thread; the process does not wait for it.
    runtime.shutdown_background();
    outcome
}

/// What tells a command to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one.
    async fn next(&mut self) -> Stop {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Stop::Interrupted,
            _ = self.terminate.recv() => Stop::Terminated,
        }
    }

    /// Waits for `future`, but no longer than until one comes.
    async fn unless_told(&mut self, future: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            _ = self.next() => {}
            () = future => {}
        }
    }
}
