//! The manual of the command line, `docs/reference/cli.md`. It is committed so that it can be read; this module, which
//! exists in tests alone, holds it to the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::CommandFactory as _;
use cofferdam_test_support::golden::assert_committed;

use super::args::Cli;

#[test]
fn the_cli_reference_is_up_to_date() {
    let mut page = include_str!("reference.md").to_owned();
    let mut command = Cli::command().disable_help_flag(true);
    command.build();
    let mut uses = BTreeMap::new();
    for sub in command.get_subcommands() {
        collect_uses(sub, "", &mut uses);
    }
    uses.retain(|_, commands| commands.len() > 1);
    page.push_str("\n## Global options\n\nEvery command has these, and `-h`, `--help`.\n\n");
    for option in command.get_arguments().filter(|it| it.is_global_set()) {
        writeln!(page, "- {}", described(option)).ok();
    }
    page.push_str("\n## Shared options\n\nOptions of several commands.\n");
    let groups: BTreeSet<_> = uses.values().collect();
    for commands in groups {
        writeln!(page, "\n{}:\n", commands.join(", ")).ok();
        for (option, _) in uses.iter().filter(|(_, users)| *users == commands) {
            writeln!(page, "- {option}").ok();
        }
    }
    for sub in command.get_subcommands_mut() {
        section(&mut page, sub, "cofferdam", &uses);
    }
    assert_committed("docs/reference/cli.md", &page);
}

/// The options of a command that are its own: not global, and not positional.
fn own_options(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
    command.get_arguments().filter(|it| !it.is_global_set() && !it.is_positional() && !it.is_hide_set())
}

/// The descriptions of options, each with the commands that have it.
type OptionUses = BTreeMap<String, Vec<String>>;

fn collect_uses(command: &clap::Command, parent: &str, uses: &mut OptionUses) {
    let path = format!("{parent} {}", command.get_name()).trim().to_owned();
    for option in own_options(command) {
        uses.entry(described(option)).or_default().push(format!("`{path}`"));
    }
    command.get_subcommands().for_each(|sub| collect_uses(sub, &path, uses));
}

/// A command's description, its arguments and options, and then its subcommands. Its help has notes and examples, too.
fn section(page: &mut String, command: &mut clap::Command, path: &str, uses: &OptionUses) {
    let path = format!("{path} {}", command.get_name());
    let about = command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string);
    writeln!(page, "\n## `{path}`\n\n{}", paragraphs(&about.unwrap_or_default())).ok();
    let usage = command.render_usage().to_string();
    let usage = usage.lines().next().unwrap_or_default().replace("Usage: ", "").replace(" [OPTIONS]", "");
    if usage != path && !command.has_subcommands() {
        writeln!(page, "\n`{usage}`").ok();
    }
    let (shared, own): (Vec<_>, Vec<_>) =
        own_options(command).partition(|option| uses.contains_key(&described(option)));
    // Some have a help that is their name again ("The package").
    let positional: Vec<_> =
        command.get_positionals().filter(|it| described(it).split(' ').count() > 3).collect();
    if !positional.is_empty() || !own.is_empty() {
        page.push('\n');
    }
    for argument in positional.into_iter().chain(own) {
        writeln!(page, "- {}", described(argument)).ok();
    }
    let shared: Vec<_> =
        shared.iter().filter_map(|it| it.get_long()).map(|long| format!("`--{long}`")).collect();
    if !shared.is_empty() {
        writeln!(page, "\n[Shared options](#shared-options): {}.", shared.join(", ")).ok();
    }
    for sub in command.get_subcommands_mut() {
        section(page, sub, &path, uses);
    }
}

/// An argument in one line: its spelling, its help, its values, its default, its aliases and its variable.
fn described(argument: &clap::Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default().join(" ");
    let mut spelling = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (_, Some(long)) => format!("--{long}"),
        _ => values.clone(),
    };
    let takes_value = argument.get_action().takes_values() && !argument.is_positional();
    if takes_value {
        let optional = argument.get_num_args().is_some_and(|range| range.min_values() == 0);
        spelling += &if optional { format!("[=<{values}>]") } else { format!(" <{values}>") };
    }
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string);
    let mut text = escaped(&help.unwrap_or_default()).split_whitespace().collect::<Vec<_>>().join(" ");
    if !text.ends_with('.') {
        text.push('.');
    }
    if !matches!(argument.get_action(), clap::ArgAction::SetTrue | clap::ArgAction::Count) {
        let possible: Vec<_> = argument.get_possible_values().iter().map(possible_value).collect();
        if !possible.is_empty() && !argument.is_hide_possible_values_set() {
            text += &format!(" Values: {}.", possible.join(", "));
        }
        let defaults: Vec<_> = argument.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
        if !defaults.is_empty() {
            text += &format!(" Default: `{}`.", defaults.join(" "));
        }
    }
    for alias in argument.get_visible_aliases().unwrap_or_default() {
        text += &format!(" Alias: `--{alias}`.");
    }
    if let Some(variable) = argument.get_env() {
        text += &format!(" Variable: `{}`.", variable.to_string_lossy());
    }
    format!("`{spelling}`: {text}")
}

fn possible_value(value: &clap::builder::PossibleValue) -> String {
    match value.get_help() {
        Some(help) => format!("`{}` ({})", value.get_name(), escaped(&help.to_string())),
        None => format!("`{}`", value.get_name()),
    }
}

/// Each paragraph of a help text in one line.
fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.map(|it| escaped(&it)).collect::<Vec<_>>().join("\n\n")
}

/// Escapes what Markdown would take as HTML or emphasis, but not in code.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(n, part)| match n % 2 {
        0 => part.replace('<', "\\<").replace('*', "\\*"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}
