//! Runs the asynchronous commands until they end or a signal stops them.

use std::future::Future;
use std::pin::pin;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_runtime::call::Cancellation;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::report::CommandError;
use cofferdam_runtime::host::Host;
#[cfg(feature = "server")]
use cofferdam_server::server::Shutdown;

/// Runs `command`, which works with `host`, as [`block_on`] does, and then waits for credentials that are being
/// renewed: the answer of an issuer may not be had twice. A signal while it waits ends the waiting.
pub(super) fn block_on_with<T>(
    host: &Host,
    command: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    run(command, host.flush())
}

/// Runs `command` on this thread. Ctrl-C and SIGTERM drop it, which cancels what it is doing: a guest and
/// its requests end, a child process is killed, a half-written file is gone.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    run(command, async {})
}

/// Runs `command` as [`block_on`] does, on as many threads as there are processors.
pub(super) fn block_on_threads<T>(
    command: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    on_runtime(&mut Builder::new_multi_thread(), async |signals| {
        tokio::select! {
            biased;
            stop = signals.next() => Err(stop),
            outcome = command => outcome,
        }
    })
}

/// Runs `call`, which `cancellation` can end: what came of it, and which signal ended it, if one did. Then waits as
/// [`block_on_with`] does.
pub(super) fn block_on_call<T>(
    host: &Host,
    cancellation: &Cancellation,
    call: impl Future<Output = T>,
) -> Result<(T, Option<CommandError>), CommandError> {
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
        signals.until_signal(host.flush()).await;
        Ok(outcome)
    })
}

/// Runs `server`, on as many threads as there are processors, until a signal tells it to end; then it takes its time to end by itself, and a second signal has what
/// runs cancelled. Then waits as [`block_on_with`] does.
#[cfg(feature = "server")]
pub(super) fn block_on_server(
    host: &Host,
    shutdown: &Shutdown,
    server: impl Future<Output = Result<(), CommandError>>,
) -> Result<(), CommandError> {
    on_runtime(&mut Builder::new_multi_thread(), async |signals| {
        let mut server = pin!(server);
        let mut received = 0;
        let outcome = loop {
            tokio::select! {
                biased;
                _ = signals.next() => {
                    received += 1;
                    if received == 1 { shutdown.begin() } else { shutdown.cancel() }
                }
                outcome = &mut server => break outcome,
            }
        };
        signals.until_signal(host.flush()).await;
        outcome
    })
}

/// Runs `command`, and `after` it whatever came of it.
fn run<T>(
    command: impl Future<Output = Result<T, CommandError>>,
    after: impl Future<Output = ()>,
) -> Result<T, CommandError> {
    on_a_runtime(async |signals| {
        let outcome = tokio::select! {
            biased;
            stop = signals.next() => Err(stop),
            outcome = command => outcome,
        };
        signals.until_signal(after).await;
        outcome
    })
}

fn on_a_runtime<T>(
    command: impl AsyncFnOnce(&mut TerminationSignals) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    on_runtime(&mut Builder::new_current_thread(), command)
}

fn on_runtime<T>(
    builder: &mut Builder,
    command: impl AsyncFnOnce(&mut TerminationSignals) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let broken = |error: std::io::Error| {
        HostError::new(HostErrorKind::Internal, "The asynchronous runtime could not be started.")
            .with_source(error)
    };
    let runtime = builder.enable_all().build().map_err(broken)?;
    let outcome = runtime.block_on(async {
        let mut signals = TerminationSignals::new().map_err(broken)?;
        command(&mut signals).await
    });
    // A name that is still being looked up holds a thread; the process does not wait for it.
    runtime.shutdown_background();
    outcome
}

/// The signals that end a command.
struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl TerminationSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one.
    async fn next(&mut self) -> CommandError {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => CommandError::Interrupted,
            _ = self.terminate.recv() => CommandError::Terminated,
        }
    }

    /// Waits for `future`, but no longer than until one comes.
    async fn until_signal(&mut self, future: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            _ = self.next() => {}
            () = future => {}
        }
    }
}
