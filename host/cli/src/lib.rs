//! The command line: the only place that knows the terminal, the environment and exit codes.
//!
//! Data goes to standard output and everything else to standard error, so that a pipe gets only
//! the result. A command is one file in `commands/`: the doc comments of its `Args` are its
//! `--help`, and its `run` reads top to bottom. An error ends a command as one `report::CommandError`, shown
//! in one place.

#![allow(rustdoc::invalid_html_tags, reason = "doc comments here are the text of --help")]

mod allow_private;
mod answer;
mod args;
mod author_key;
mod cluster_config;
mod cluster_trust;
mod commands;
mod config_file;
mod connector_set;
mod dev_options;
mod exit_codes;
pub mod explain;
#[cfg(cofferdam_failpoints)]
mod failpoints;
mod files;
#[cfg(feature = "cluster")]
mod jobs_queue;
mod layout;
#[cfg(feature = "server")]
mod listen;
mod logging;
mod package_source;
mod passphrase;
mod process_setup;
mod process_user;
mod progress;
mod project;
mod prompt;
mod provenance_file;
#[cfg(test)]
mod reference_tests;
mod report;
mod retries;
mod runtime;
mod sdk_files;
mod secrets;
mod session;
mod shared_log;
mod telemetry;
mod toolchain;
mod ui;
mod vault_config;

use std::process::ExitCode;

use clap::Parser as _;

use args::Cli;
use session::Session;
use ui::Ui;

/// Runs the command line of this process; the exit code is one of `docs/reference/failures.md`.
#[must_use]
pub fn main() -> ExitCode {
    process_setup::prepare();
    if std::env::args_os().len() <= 1 {
        return report::help();
    }
    if std::env::args_os().any(|arg| arg.to_string_lossy().contains(report::SECRET_MARK)) {
        return report::secret_argument();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report::usage(&error),
    };
    if cli.command.is_server() {
        process_setup::keep_no_freed_memory();
    }
    #[cfg(cofferdam_failpoints)]
    if let Some(code) = failpoints::arm() {
        return code;
    }
    cli.globals.color.apply();
    let ui = Ui::new(&cli.globals);
    let telemetry = match logging::start(&cli.globals) {
        Ok(telemetry) => telemetry,
        Err(stop) => return report::report_end(&ui, stop),
    };
    let session = Session::new(&ui, cli.globals);
    let code = match commands::run(cli.command, &session) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => report::report_end(&ui, stop),
    };
    // A prompt that a signal cut off still has the terminal in its own mode.
    prompt::restore();
    // Last, because the caller has the answer by now.
    telemetry.end();
    code
}
