//! The arguments that every command takes, and the list of commands.

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use super::commands;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXAMPLES: &str = "\
From nothing to a call:
  cofferdam new hello --owner acme                  a connector's project, and once the author's key
  cofferdam build hello                             compile, check, package
  cofferdam sign hello/target/cofferdam/hello-0.1.0.wasm
  cofferdam trust add \"$(cofferdam key public)\" --for 'github://acme/*'
  cofferdam install hello/target/cofferdam/hello-0.1.0.wasm
  cofferdam call github://acme/hello greet --arg name=Ada

A connector that asks for a credential gets it sent for it, once it is bound:
  cofferdam binding set bearer/slack

`cofferdam COMMAND --help` has examples of each command. Exit codes are in docs/reference/failures.md.";

/// Runs connectors from others: verified, granted only what they declare, limited, recorded.
///
/// A connector is one file: a WebAssembly component with its manifest inside. Its identity is its name,
/// its version and its SHA-256, and it runs only if a key that you trust for that name has signed it.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, styles = STYLES, after_help = EXAMPLES, max_term_width = 110)]
#[command(subcommand_required = true, disable_help_subcommand = true)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) globals: GlobalArgs,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// The options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct GlobalArgs {
    /// The directory with the keyring, the installed connectors and `config.toml`.
    ///
    /// By default the `cofferdam` directory in the user's data directory ($XDG_DATA_HOME, or
    /// ~/.local/share).
    #[arg(long, global = true, env = "COFFERDAM_HOME", hide_env_values = true, value_name = "DIR")]
    pub(super) home: Option<PathBuf>,

    /// The file with the vault's passphrase, which its owner alone may be able to read.
    ///
    /// Insists on a vault that is locked with a passphrase. COFFERDAM_VAULT_PASSPHRASE may hold the passphrase
    /// itself. Without either, the passphrase is asked for where the vault turns out to need one.
    #[arg(
        long,
        global = true,
        env = "COFFERDAM_VAULT_PASSPHRASE_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub(super) passphrase_file: Option<PathBuf>,

    /// Leaves servers and the compile worker without Landlock and seccomp.
    ///
    /// By default `serve`, `mcp` and the compile worker of every command keep themselves to the files and system
    /// calls that they need; `cofferdam inspect --host` shows what holds on this machine.
    #[arg(long, global = true, env = "COFFERDAM_NO_CONFINE", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub(super) no_confine: bool,

    /// The format of results on standard output: text for people, or one line of JSON.
    ///
    /// With `json`, errors are one line of JSON too: on standard error, but for `call`, whose failures are
    /// its answer and go to standard output.
    #[arg(long, global = true, value_enum, default_value_t = OutputFormat::Human, value_name = "FORMAT")]
    pub(super) format: OutputFormat,

    /// Prints results and errors alone: no progress, no notes, no warnings.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// Prints more on standard error: causes and the log lines of each call; twice and three times, still more.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(super) verbose: u8,

    /// When to colour. NO_COLOR, CLICOLOR and CLICOLOR_FORCE are honoured.
    #[arg(long, global = true, value_enum, default_value_t = ColorMode::Auto, value_name = "WHEN")]
    pub(super) color: ColorMode,

    /// The format of log lines on standard error. RUST_LOG chooses which (like `cofferdam=debug`).
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(super) log_format: LogFormat,
}

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people.
    Human,
    /// One line of JSON.
    Json,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The rule for colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorMode {
    /// On terminals.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorMode {
    /// Applies it to everything that this process prints.
    pub(super) fn apply(self) {
        let choice = match self {
            Self::Auto => return,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    New(commands::new::Args),
    Build(commands::build::Args),
    Dev(commands::dev::Args),
    Test(Box<commands::test::Args>),
    Pack(commands::pack::Args),
    #[command(subcommand)]
    Key(commands::key::Command),
    Sign(commands::sign::Args),
    #[command(subcommand)]
    Trust(commands::trust::Command),
    Publish(commands::publish::Args),
    Pull(commands::pull::Args),
    Tags(commands::tags::Args),
    Install(commands::install::Args),
    List(commands::list::Args),
    Inspect(commands::inspect::Args),
    Diff(commands::diff::Args),
    Review(commands::review::Args),
    Rebuild(commands::rebuild::Args),
    Why(commands::why::Args),
    Explain(commands::explain::Args),
    Verify(commands::verify::Args),
    Use(commands::use_version::Args),
    Sync(commands::sync::Args),
    Outdated(commands::outdated::Args),
    Update(commands::sync::UpdateArgs),
    Vendor(commands::vendor::Args),
    Rollback(commands::rollback::Args),
    Remove(commands::remove::Args),
    #[command(subcommand)]
    Action(commands::action::Command),
    #[command(subcommand)]
    Binding(commands::binding::Command),
    Call(commands::call::Args),
    Run(commands::run::Args),
    #[command(subcommand)]
    Trace(commands::trace::Command),
    #[cfg(feature = "server")]
    Mcp(commands::mcp::Args),
    Replay(commands::replay::Args),
    #[command(subcommand)]
    Recover(commands::recover::Command),
    #[command(subcommand)]
    Approvals(commands::approvals::Command),
    #[command(subcommand)]
    Audit(commands::audit::Command),
    #[command(subcommand)]
    Breaker(commands::breaker::Command),
    #[cfg(feature = "server")]
    Serve(commands::serve::Args),
    #[cfg(feature = "server")]
    Console(commands::console::Args),
    #[cfg(feature = "server")]
    Report(commands::report::Args),
    #[cfg(feature = "server")]
    Top(commands::top::Args),
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Submit(Box<commands::submit::Command>),
    #[cfg(feature = "cluster")]
    Worker(commands::worker::Args),
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Jobs(commands::jobs::Command),
    Doctor(commands::doctor::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

impl Command {
    /// Returns whether it serves requests until it is stopped.
    pub(super) fn is_server(&self) -> bool {
        #[cfg(feature = "cluster")]
        if matches!(self, Self::Worker(_)) {
            return true;
        }
        #[cfg(feature = "server")]
        return matches!(self, Self::Mcp(_) | Self::Serve(_));
        #[cfg(not(feature = "server"))]
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_definition_of_the_arguments_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Clap wraps for the terminal that is there: a line that was broken by hand would be broken twice.
    #[test]
    fn no_help_is_wrapped_by_hand() {
        fn check(command: &clap::Command, path: &str) {
            let texts = [command.get_after_help(), command.get_after_long_help(), command.get_long_about()];
            for text in texts.into_iter().flatten().map(ToString::to_string) {
                let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
                let mut lines = text.lines().zip(text.lines().skip(1));
                let broken = lines.find(|(one, next)| is_prose(one) && is_prose(next));
                assert_eq!(broken, None, "{path}");
            }
            for sub in command.get_subcommands() {
                check(sub, &format!("{path} {}", sub.get_name()));
            }
        }
        check(&Cli::command(), "cofferdam");
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command, path: &str) {
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                let path = format!("{path} {}", sub.get_name());
                assert!(sub.get_about().is_some(), "{path} has no description");
                if sub.has_subcommands() {
                    check(sub, &path);
                    continue;
                }
                let examples = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(examples.contains(&format!("  {}", path.trim())), "{path} has no example");
                for argument in sub.get_arguments() {
                    assert!(argument.get_help().is_some(), "{path} {} has no help", argument.get_id());
                }
            }
        }
        check(&Cli::command(), "cofferdam");
    }
}
