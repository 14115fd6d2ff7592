//! `dev`: builds a connector at each change, and calls it in a private home.

mod display;
mod prompt;
#[cfg(feature = "server")]
mod servers;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use cofferdam_core::error::HostErrorKind;
use cofferdam_core::event::{Event, EventKind, Listener};
use cofferdam_core::failure::AuditId;
use cofferdam_core::trace::{AttemptTrace, TraceCollector};
use cofferdam_dev::{DevHome, Watcher};
use cofferdam_model::package::{OperationSignature, Package};
use cofferdam_runtime::call::{Call, CallResult, Cancellation, ConnectorRef};
use cofferdam_runtime::host::Host;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::commands::packaging::{self, DocsSource};
use crate::commands::trace;
use crate::dev_options::{self, DevOptions};
use crate::exit_codes::{USAGE, exit_code, kind_exit_code};
use crate::project::{BuildPurpose, Project};
use crate::report::CommandError;
use crate::runtime;
use crate::session::Session;
use display::Display;
use prompt::{Line, Prompt};

const EXAMPLES: &str = "\
The connector is built at each save and replaced in a home of its own, whose key no other home trusts. It runs with \
the grants and the limits of its manifest. Type `OPERATION {JSON}` or `OPERATION NAME=VALUE ...` to call it; Tab \
completes. If standard input is not a terminal, its lines are calls, one after the other, and its end ends the command.

Examples:
  cofferdam dev
  cofferdam dev connectors/tickets --upstream api.tickets.example:443=http://localhost:8099
  cofferdam dev --bind bearer/tickets=@token.txt
  echo 'feels celsius=21' | cofferdam dev
  cofferdam dev --mcp";

/// Builds and calls a connector while it is being written.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The directory of the connector.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    #[command(flatten)]
    options: DevOptions,

    #[cfg(feature = "server")]
    #[command(flatten)]
    servers: servers::ServerArgs,
}

/// The actor of calls that are typed, in the audit log.
const ACTOR: &str = "dev";

/// A build that is running.
type Build<'a> = Pin<Box<dyn Future<Output = Result<Package, CommandError>> + 'a>>;

/// Builds, watches and calls until the input ends.
pub(crate) fn run(args: Args, session: &Session<'_>) -> Result<(), CommandError> {
    let project = Project::open(&args.dir)?;
    let home = DevHome::open(dev_options::home_dir("dev", project.dir())?)?;
    let network = args.options.network()?;
    runtime::block_on(async {
        let (listener, served) = EndedCalls::new();
        let host = session.dev_host(&home, |builder| network.apply_to(builder).listener(listener))?;
        let mut watcher = Watcher::new([project.dir().to_owned()]);
        let is_protocol = args.has_protocol();
        let prompt = if is_protocol { Prompt::without_input() } else { Prompt::start(session.ui) };
        let mut display = Display::new(session.ui.clone(), prompt.printer());
        if is_protocol {
            display = display.beside_a_protocol();
        }
        for mapping in args.options.mappings() {
            display.note(&format!("{} is answered by {}", mapping.service(), mapping.target()));
        }
        let development =
            Development { session, project: &project, home: &home, host: &host, options: &args.options };
        let serving = args.serve(&host, &home, session);
        let ended = tokio::select! {
            ended = development.run(&mut watcher, prompt, display, served) => ended,
            ended = serving => ended,
        };
        host.flush().await;
        ended
    })
}

impl Args {
    /// Returns whether standard input and output belong to a protocol.
    fn has_protocol(&self) -> bool {
        #[cfg(feature = "server")]
        return self.servers.has_protocol();
        #[cfg(not(feature = "server"))]
        false
    }

    /// Serves clients until they have ended; without servers, for ever.
    async fn serve(&self, host: &Host, home: &DevHome, session: &Session<'_>) -> Result<(), CommandError> {
        #[cfg(feature = "server")]
        return self.servers.serve(host, home, session).await;
        #[cfg(not(feature = "server"))]
        std::future::pending().await
    }
}

/// Sends the ids of calls that have ended.
struct EndedCalls(UnboundedSender<AuditId>);

impl EndedCalls {
    fn new() -> (Arc<Self>, UnboundedReceiver<AuditId>) {
        let (sender, receiver) = unbounded_channel();
        (Arc::new(Self(sender)), receiver)
    }
}

impl Listener for EndedCalls {
    fn event(&self, event: &Event<'_>) {
        if matches!(event.kind, EventKind::Final { .. }) {
            // Fails only when the command has ended.
            drop(self.0.send(event.audit_id.clone()));
        }
    }
}

/// A call that was typed, and has ended.
struct EndedCall {
    operation: String,
    result: CallResult,
    attempts: Vec<AttemptTrace>,
    /// The note or the warning about the file of its trace.
    trace_file: Option<Result<String, String>>,
}

/// The build that calls go to.
struct CurrentBuild {
    connector: ConnectorRef,
    operations: Vec<OperationSignature>,
}

/// The parts of a development session, which live as long as it does.
struct Development<'a> {
    session: &'a Session<'a>,
    project: &'a Project,
    home: &'a DevHome,
    host: &'a Host,
    options: &'a DevOptions,
}

impl<'a> Development<'a> {
    /// Reacts to changes, finished builds, lines and finished calls, until the input has ended and nothing runs.
    async fn run(
        &self,
        watcher: &mut Watcher,
        mut prompt: Prompt,
        mut display: Display,
        mut served: UnboundedReceiver<AuditId>,
    ) -> Result<(), CommandError> {
        display.note("building");
        let mut building = Some((Instant::now(), self.build(&display)));
        let mut current: Option<CurrentBuild> = None;
        // Lines that were read before the first build had an end, and piped lines, whose calls run one after the other.
        let mut waiting: VecDeque<Line> = VecDeque::new();
        let is_piped = prompt.printer().is_none();
        let mut calls: JoinSet<EndedCall> = JoinSet::new();
        let mut cancellation = Cancellation::new();
        // The exit codes of the last call that failed, and of the last build that failed without one that can be called.
        let (mut failed, mut not_built) = (None, None);
        let mut input_ended = false;
        loop {
            if input_ended && calls.is_empty() && waiting.is_empty() && building.is_none() {
                return failed.or(not_built).map_or(Ok(()), |code| Err(CommandError::Shown(code)));
            }
            tokio::select! {
                changed = watcher.changed() => {
                    // The build that is running has read older sources: dropping it ends the compiler.
                    display.changed(self.project.dir(), &changed);
                    building = Some((Instant::now(), self.build(&display)));
                }
                built = async {
                    match &mut building {
                        Some((since, build)) => (*since, build.await),
                        None => std::future::pending().await,
                    }
                } => {
                    building = None;
                    let swapped = match built.1 {
                        Ok(package) => self.swap(&package).await.map(|connector| (package, connector)),
                        Err(error) => Err(error),
                    };
                    match swapped {
                        Ok((package, connector)) => {
                            display.ready(&package, built.0.elapsed())?;
                            prompt.complete_with(package.operations());
                            current = Some(CurrentBuild { connector, operations: package.operations().to_vec() });
                            not_built = None;
                        }
                        Err(error) if current.is_none() && input_ended => return Err(error),
                        Err(error) => {
                            let error = error.into_error()?;
                            not_built = current.is_none().then(|| exit_code(&error));
                            display.not_built(&error, current.is_some())?;
                        }
                    }
                    while let Some(line) = waiting.pop_front_if(|_| !is_piped || calls.is_empty()) {
                        failed = self.start(line, current.as_ref(), &cancellation, &mut calls, &display).or(failed);
                    }
                }
                line = prompt.next(), if !input_ended => match line {
                    // At a terminal nothing is left to wait for: dropping the build and the calls ends them.
                    None if prompt.printer().is_some() => return Ok(()),
                    None => input_ended = true,
                    Some(Line::Interrupt) if calls.is_empty() => return Ok(()),
                    Some(Line::Interrupt) => {
                        display.note("cancelling");
                        std::mem::take(&mut cancellation).cancel();
                        prompt.resume();
                    }
                    Some(line) if building.is_some() && current.is_none() => waiting.push_back(line),
                    Some(line) if is_piped && !calls.is_empty() => waiting.push_back(line),
                    Some(line) => {
                        failed = self.start(line, current.as_ref(), &cancellation, &mut calls, &display).or(failed);
                    }
                },
                Some(id) = served.recv() => display.recorded(self.host, &id).await?,
                Some(ended) = calls.join_next() => {
                    if let Ok(EndedCall { operation, result, attempts, trace_file }) = ended {
                        failed = result.outcome.as_ref().err().map(exit_code).or(failed);
                        display.ended(self.host, &operation, &result, &attempts)?;
                        match trace_file {
                            Some(Ok(note)) => display.note(&note),
                            Some(Err(warning)) => display.error(&warning),
                            None => {}
                        }
                    }
                    if let Some(line) = waiting.pop_front() {
                        failed = self.start(line, current.as_ref(), &cancellation, &mut calls, &display).or(failed);
                    }
                }
            }
        }
    }

    /// Starts a build of the sources as they are now.
    fn build(&self, display: &Display) -> Build<'a> {
        let terminal = display.terminal();
        let (dir, host, session) = (self.project.dir(), self.host, self.session);
        Box::pin(async move {
            let project = Project::open(dir)?;
            let ui = terminal.ui(session.ui);
            let (color, message) = (terminal.cargo_color(), |line: &str| terminal.raw(line));
            let built = project.build(&ui, BuildPurpose::Development { color, message: &message }).await?;
            let (component, docs) = (built.read()?, DocsSource::Wit(project.wit().to_vec()));
            packaging::assemble(session, host, &component, project.manifest(), docs).await
        })
    }

    /// Replaces the installed connector. Running calls end on the build that they began with.
    async fn swap(&self, package: &Package) -> Result<ConnectorRef, CommandError> {
        let connector = self.home.install(self.host, package).await?;
        self.options.bind(self.host, self.session)?;
        Ok(connector)
    }

    /// Starts the call that a line asks for. Returns an exit code if it cannot be started.
    fn start(
        &self,
        line: Line,
        current: Option<&CurrentBuild>,
        cancellation: &Cancellation,
        calls: &mut JoinSet<EndedCall>,
        display: &Display,
    ) -> Option<u8> {
        let asked = match line {
            Line::Call(call) => call,
            Line::Unreadable(why) => {
                display.error(&why);
                return Some(USAGE);
            }
            Line::Help => {
                display.help();
                return None;
            }
            // Handled as it comes.
            Line::Interrupt => return None,
        };
        let Some(CurrentBuild { connector, operations }) = current else {
            display.error("The connector is not built yet.");
            return Some(kind_exit_code(HostErrorKind::Tool));
        };
        if let Some(refused) = asked.trace.as_ref().and_then(|path| packaging::check_output(path).err()) {
            display.error(refused.message());
            return Some(kind_exit_code(refused.kind()));
        }
        let (operation, key, trace_file) = (asked.operation.clone(), asked.key.clone(), asked.trace.clone());
        let signature = operations.iter().find(|known| known.name().json() == operation);
        let arguments = Value::Object(asked.arguments_for(signature));
        let mut call = Call::new(connector.clone(), operation.clone(), arguments);
        if let Some(key) = key {
            call = call.idempotency_key(key);
        }
        let call = call.actor(ACTOR).cancelled_by(cancellation);
        let host = self.host.clone();
        calls.spawn(async move {
            let (traces, connector) = (TraceCollector::default(), call.connector().to_string());
            let result = host.run(call.traced_by(&traces)).await;
            let attempts = traces.take();
            let written = trace_file.map(|path| {
                trace::write(&path, (&connector, &operation), &result.report.audit_id, &attempts)
            });
            EndedCall { operation, result, attempts, trace_file: written }
        });
        None
    }
}
