//! The `cofferdam` binary: the worker that compiles a component, if asked for, and the command line otherwise.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a worker bounds its own memory and time, and must not hold any of ours.
    if std::env::args_os().nth(1).is_some_and(|first| first == cofferdam_sandbox::COMPILE_WORKER_ARG) {
        return cofferdam_sandbox::compile_worker();
    }
    cofferdam_cli::main()
}
