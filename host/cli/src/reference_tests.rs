//! The manual, `docs/reference/cli.md` and `docs/reference/exit-codes.md`. It is committed so that it can be read; this module,
//! which exists in tests alone, holds it to the code.

use std::fmt::Write as _;

use clap::CommandFactory as _;
use cofferdam_core::error::HostErrorKind;
use cofferdam_core::failure::FailureClass;
use cofferdam_test_support::committed::assert_committed;

use super::args::Cli;
use super::exit_codes::{INTERRUPTED, TERMINATED, USAGE};

#[test]
fn the_manual_of_the_command_line_is_its_help() {
    let mut page = include_str!("reference.md").to_owned();
    let mut command = Cli::command().term_width(100);
    command.build();
    section(&mut page, &mut command, "cofferdam");
    assert_committed("docs/reference/cli.md", &page);
}

#[test]
fn the_manual_of_the_exit_codes_is_the_tables() {
    assert_committed("docs/reference/exit-codes.md", &exit_codes());
}

/// A command's help, and that of its commands.
fn section(page: &mut String, command: &mut clap::Command, path: &str) {
    let help = command.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    let mut help = help.join("\n");
    // The options that every command takes stand once, with the program itself.
    if let Some((before, after)) = help.split_once("\nGlobal options:\n").filter(|_| path.contains(' ')) {
        let examples: Vec<_> =
            after.lines().skip_while(|line| line.is_empty() || line.starts_with(' ')).collect();
        help = format!("{before}\n{}", examples.join("\n"));
    }
    page.push_str(&format!("\n## `{path}`\n\n```text\n{}\n```\n", help.trim_end()));
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
        let path = format!("{path} {}", sub.get_name());
        section(page, sub, &path);
    }
}

fn exit_codes() -> String {
    let mut page = String::from(
        "# Exit codes\n\n\
         Made from the tables in `host/core/src/failure/class.rs` and `host/core/src/error/mod.rs`; a test holds the two \
         together. The codes are stable: scripts may branch on them. `--format json` says the same in words, \
         as `error.class` or `error.code`.\n\n\
         | code | meaning |\n|---|---|\n",
    );
    let own = [
        (0, "The command did what it was asked, or its reader closed the pipe."),
        (USAGE, "The arguments are wrong; the message says which."),
        (INTERRUPTED, "Cancelled by Ctrl-C (SIGINT)."),
        (TERMINATED, "Cancelled by SIGTERM."),
    ];
    for (code, meaning) in own {
        writeln!(page, "| {code} | {meaning} |").ok();
    }
    page.push_str(
        "\n## A call's outcome\n\n\
         The call has an outcome, and it is a failure: one code a class. `install` and `verify` end with \
         those of them that keep a connector from running. `why` ends with `capability_denied` where the \
         access is not granted, and with `binding_required` or `binding_failed` where it is granted and a \
         credential that the call needs is not bound for it. `binding test` ends with what a call would end with.\n\n\
         | code | class | meaning | retriable |\n|---|---|---|---|\n",
    );
    for class in FailureClass::ALL {
        let retriable =
            if class.retriable_by_default() { "as a rule" } else { "only where the failure says so" };
        let (code, name, meaning) = (class.exit_code(), class.name(), class.meaning());
        writeln!(page, "| {code} | `{name}` | {meaning} | {retriable} |").ok();
    }
    page.push_str(
        "\n## The host's own errors\n\n\
         The request could not be taken up, and nothing ran; but that a call was cancelled may come later: \
         `error.details.attempts` says how many attempts it had begun, of which the last may have had effects. \
         Of an action this is said of the step that could not be begun, or of its `[output]`: `error.details.done` names \
         the steps that are done.\n\n\
         | code | kind | meaning |\n|---|---|---|\n",
    );
    for kind in HostErrorKind::ALL {
        writeln!(page, "| {} | `{}` | {} |", kind.exit_code(), kind.code(), kind.meaning()).ok();
    }
    page
}
