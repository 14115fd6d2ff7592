//! The commands, a file each: its arguments, whose comments are its help, and what it does.

pub(super) mod action;
pub(super) mod approvals;
pub(super) mod audit;
mod batch;
pub(super) mod binding;
pub(super) mod breaker;
pub(super) mod build;
pub(super) mod call;
pub(super) mod completions;
#[cfg(feature = "server")]
pub(super) mod console;
pub(super) mod dev;
pub(super) mod diff;
pub(super) mod doctor;
pub(super) mod explain;
mod fallback;
pub(super) mod inspect;
pub(super) mod install;
#[cfg(feature = "cluster")]
pub(super) mod jobs;
pub(super) mod key;
pub(super) mod list;
pub(super) mod man;
#[cfg(feature = "server")]
pub(super) mod mcp;
mod minimum_version;
pub(super) mod new;
pub(super) mod outdated;
pub(super) mod pack;
pub(super) mod packaging;
pub(super) mod publish;
pub(super) mod pull;
pub(super) mod rebuild;
pub(super) mod recover;
pub(super) mod remove;
pub(super) mod replay;
#[cfg(feature = "server")]
pub(super) mod report;
pub(super) mod review;
pub(super) mod rollback;
pub(super) mod run;
#[cfg(feature = "server")]
pub(super) mod serve;
pub(super) mod sign;
#[cfg(feature = "cluster")]
pub(super) mod submit;
pub(super) mod sync;
pub(super) mod tags;
pub(super) mod test;
mod time_format;
#[cfg(feature = "server")]
pub(super) mod top;
pub(super) mod trace;
pub(super) mod trust;
pub(super) mod use_version;
pub(super) mod vendor;
pub(super) mod verify;
pub(super) mod why;
#[cfg(feature = "cluster")]
pub(super) mod worker;

use super::args::Command;
use super::report::CommandError;
use super::session::Session;

/// Does what was asked.
pub(super) fn run(command: Command, session: &Session<'_>) -> Result<(), CommandError> {
    match command {
        Command::New(args) => new::run(args, session),
        Command::Build(args) => build::run(args, session),
        Command::Test(args) => test::run(*args, session),
        Command::Pack(args) => pack::run(args, session),
        Command::Dev(args) => dev::run(args, session),
        Command::Key(command) => key::run(command, session),
        Command::Sign(args) => sign::run(args, session),
        Command::Trust(command) => trust::run(command, session),
        Command::Publish(args) => publish::run(args, session),
        Command::Pull(args) => pull::run(args, session),
        Command::Tags(args) => tags::run(args, session),
        Command::Install(args) => install::run(args, session),
        Command::List(args) => list::run(args, session),
        Command::Inspect(args) => inspect::run(args, session),
        Command::Diff(args) => diff::run(args, session),
        Command::Review(args) => review::run(args, session),
        Command::Sync(args) => sync::run(args, session),
        Command::Update(args) => sync::run_update(args, session),
        Command::Outdated(args) => outdated::run(args, session),
        Command::Vendor(args) => vendor::run(args, session),
        Command::Rebuild(args) => rebuild::run(args, session),
        Command::Why(args) => why::run(args, session),
        Command::Explain(args) => explain::run(args, session),
        Command::Verify(args) => verify::run(args, session),
        Command::Use(args) => use_version::run(args, session),
        Command::Rollback(args) => rollback::run(args, session),
        Command::Remove(args) => remove::run(args, session),
        Command::Action(command) => action::run(command, session),
        Command::Binding(command) => binding::run(command, session),
        Command::Call(args) => call::run(args, session),
        Command::Run(args) => run::run(args, session),
        Command::Trace(command) => trace::run(command, session),
        Command::Approvals(command) => approvals::run(command, session),
        Command::Audit(command) => audit::run(command, session),
        Command::Replay(args) => replay::run(args, session),
        Command::Recover(command) => recover::run(command, session),
        #[cfg(feature = "server")]
        Command::Mcp(args) => mcp::run(args, session),
        Command::Breaker(command) => breaker::run(command, session),
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::run(args, session),
        #[cfg(feature = "server")]
        Command::Console(args) => console::run(args, session),
        #[cfg(feature = "server")]
        Command::Report(args) => report::run(args, session),
        #[cfg(feature = "server")]
        Command::Top(args) => top::run(&args, session),
        #[cfg(feature = "cluster")]
        Command::Submit(command) => submit::run(*command, session),
        #[cfg(feature = "cluster")]
        Command::Worker(args) => worker::run(args, session),
        #[cfg(feature = "cluster")]
        Command::Jobs(command) => jobs::run(command, session),
        Command::Doctor(args) => doctor::run(args, session),
        Command::Completions(args) => completions::run(args, session),
        Command::Man(args) => man::run(args, session),
    }
}
