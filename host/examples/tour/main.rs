//! A tour of cofferdam: builds connectors, installs them, calls them, and shows what holds when they misbehave.
//!
//! `cargo run --release --example tour`. Everything is real: guests compiled from `examples/`, a package
//! signed and verified, a server on the loopback interface. It uses a temporary home and leaves nothing
//! behind; the exit code says whether everything went as promised.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a tour: what it cannot set up ends it, and that is the message"
)]

mod scenes;
mod show;
mod stage;

use std::process::ExitCode;

use show::Show;
use stage::Stage;

fn main() -> ExitCode {
    // The host compiles components in a child process under limits: here that child is this program.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == cofferdam::COMPILE_WORKER_ARG) {
        return cofferdam::compile_worker();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let code = runtime.block_on(async {
        tokio::select! {
            code = tour() => code,
            // Dropping the tour drops its home, its server and its guests.
            () = interrupted() => {
                anstream::eprintln!("\nThe tour was interrupted; nothing is left of it.");
                ExitCode::from(130)
            }
        }
    });
    // A build of the guests may still be waiting for its cargo, which the terminal interrupts as well.
    runtime.shutdown_background();
    code
}

async fn tour() -> ExitCode {
    let mut show = Show::start();
    let stage = match Stage::set(&mut show).await {
        Ok(stage) => stage,
        Err(why) => {
            anstream::eprintln!("\nThe tour cannot start: {why}");
            return ExitCode::FAILURE;
        }
    };
    scenes::play(&stage, &mut show).await;
    let home = stage.home.path().to_owned();
    drop(stage);
    let nothing_left = !home.exists();
    match show.end(nothing_left) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// The user wants the tour to end.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
