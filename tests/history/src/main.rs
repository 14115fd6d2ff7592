//! `history DIRECTORY` judges the histories of a run, and exits with 1 if anything is wrong.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the command")]

use std::path::PathBuf;
use std::process::ExitCode;

use cofferdam_history::{Histories, check};

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!(
            "usage: history DIRECTORY, with plan.jsonl, answers.jsonl, effects.jsonl and log.jsonl in it"
        );
        return ExitCode::from(2);
    };
    match Histories::read(&dir) {
        Ok(histories) => {
            let verdict = check(&histories);
            println!("{verdict}");
            ExitCode::from(u8::from(!verdict.findings.is_empty()))
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
