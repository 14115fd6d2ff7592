//! Runs scenarios: each in a host of its own, against a service of its own.

mod judge;
mod junit;
mod report;

use std::net::SocketAddr;
use std::sync::Arc;

use cofferdam_core::clock::{Clock, SystemClock};
use cofferdam_core::error::{Error, HostError, HostErrorKind};
use cofferdam_core::event::Listener;
use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::egress::{HostPort, RootCertificates};
use cofferdam_model::action::ActionScope;
use cofferdam_model::manifest::HostGrant;
use cofferdam_model::package::Package;
use cofferdam_runtime::call::{Call, CallResult, Cancellation, ConnectorRef, Report};
use cofferdam_runtime::host::HostBuilder;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::authority::LocalAuthority;
use crate::bindings::MemoryVault;
use crate::clock::ManualClock;
use crate::home::DevHome;
use crate::memory_log::MemoryLog;
use crate::network::LocalNetwork;
use crate::scenario::{Scenario, ScenarioCall, TestedConnector};
use crate::service::{Injection, Script, ScriptEnd, ScriptedService};

pub use junit::junit_xml;
pub use report::{CallSummary, Problem, ProblemKind, ScenarioReport};

/// Completes the configuration of a host: its compiler, and what else the command was given.
type ConfigureHost = Box<dyn Fn(HostBuilder) -> HostBuilder + Send + Sync>;

/// Runs the scenarios of one connector.
pub struct TestRunner {
    home: DevHome,
    configure: ConfigureHost,
    connector: ConnectorRef,
    tested: TestedConnector,
    authority: Arc<LocalAuthority>,
}

/// The ways in which a run may differ from what its scenario says.
#[derive(Default)]
pub(crate) struct Variation {
    /// The fault that takes the place of an answer.
    pub(crate) injection: Option<Injection>,
    /// True if each attempt begins where the first one did.
    pub(crate) replays_attempts: bool,
    /// The index of the call that is changed, after which no other is made.
    pub(crate) call: Option<usize>,
    /// The limits of that call.
    pub(crate) limits: LimitRequest,
    /// A host that the call may not reach.
    pub(crate) without_host: Option<HostGrant>,
    /// A credential that is not bound, by its label.
    pub(crate) without_credential: Option<String>,
}

/// A run of a scenario.
pub(crate) struct Execution {
    pub(crate) calls: Vec<FinishedCall>,
    pub(crate) end: ScriptEnd,
}

/// A call that was made.
pub(crate) struct FinishedCall {
    pub(crate) outcome: Result<Value, Error>,
    pub(crate) report: Report,
}

impl TestRunner {
    /// Installs `package` in `home`, compiled. `configure` completes the configuration of each host.
    ///
    /// # Errors
    /// The package cannot be installed.
    pub async fn new(
        home: DevHome,
        package: &Package,
        configure: impl Fn(HostBuilder) -> HostBuilder + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let authority = LocalAuthority::new().map_err(|error| {
            HostError::new(HostErrorKind::Internal, "The local services cannot be certified.")
                .with_source(error)
        })?;
        let host = configure(home.builder()).build()?;
        let connector = home.install(&host, package).await?;
        host.flush().await;
        Ok(Self {
            home,
            configure: Box::new(configure),
            connector,
            tested: TestedConnector::new(package),
            authority: Arc::new(authority),
        })
    }

    /// Returns the connector.
    #[must_use]
    pub fn tested(&self) -> &TestedConnector {
        &self.tested
    }

    /// Returns the authority that certifies the local services.
    pub(crate) fn authority(&self) -> &Arc<LocalAuthority> {
        &self.authority
    }

    /// Returns the configuration of a host in the home.
    pub(crate) fn builder(&self) -> HostBuilder {
        (self.configure)(self.home.builder())
    }

    /// Maps every host that the manifest grants to `address`.
    pub(crate) fn route_all(&self, network: &mut LocalNetwork, address: SocketAddr) -> Result<(), HostError> {
        for grant in self.tested.manifest().hosts() {
            let name = format!("{}:{}", grant.host(), grant.port());
            let name = HostPort::parse(&name).map_err(|error| not_started(&error))?;
            network.route(&name, address);
        }
        Ok(())
    }

    /// Returns the connector, as `name@version`.
    #[must_use]
    pub fn connector(&self) -> &ConnectorRef {
        &self.connector
    }

    /// Runs `scenario`.
    pub async fn run(&self, scenario: &Scenario) -> ScenarioReport {
        self.run_with_execution(scenario).await.0
    }

    /// Runs `scenario`, and returns its execution, too, if it could be run.
    pub(crate) async fn run_with_execution(
        &self,
        scenario: &Scenario,
    ) -> (ScenarioReport, Option<Execution>) {
        let started = SystemClock.now();
        let execution = self.execute(scenario, Variation::default()).await;
        let took = SystemClock.now().saturating_duration_since(started);
        match execution {
            Ok(execution) => (judge::judge(scenario, &execution, took), Some(execution)),
            Err(error) => (ScenarioReport::not_run(scenario, &error, took), None),
        }
    }

    /// Runs `scenarios`, so many at once, and reports each to `done`, in their order.
    pub async fn run_all(
        self: &Arc<Self>,
        scenarios: &[Arc<Scenario>],
        jobs: usize,
        mut done: impl FnMut(&ScenarioReport),
    ) -> Vec<ScenarioReport> {
        let work = scenarios.iter().map(|scenario| {
            let (runner, scenario) = (Arc::clone(self), Arc::clone(scenario));
            async move { runner.run(&scenario).await }
        });
        let mut reports = Vec::with_capacity(scenarios.len());
        in_order(work, jobs, |report| {
            done(&report);
            reports.push(report);
        })
        .await;
        reports
    }

    /// Runs `scenario`, changed as `variation` says.
    ///
    /// # Errors
    /// The service or the host could not be started.
    pub(crate) async fn execute(
        &self,
        scenario: &Scenario,
        variation: Variation,
    ) -> Result<Execution, HostError> {
        let manifest = self.tested.manifest();
        let clock = scenario.clock.map_or_else(ManualClock::new, ManualClock::starting_at);
        let mut script = Script::new(&scenario.service, scenario.unordered, manifest);
        if variation.replays_attempts {
            script = script.replaying(variation.injection.clone());
        }
        let script = Arc::new(script);
        let service = ScriptedService::start(
            Arc::clone(&script),
            Arc::clone(&clock),
            Arc::clone(&self.authority),
            manifest,
        )
        .await
        .map_err(|error| not_started(&error))?;
        let mut network = LocalNetwork::with_authority(Arc::clone(&self.authority));
        self.route_all(&mut network, service.address())?;
        let refusing = Arc::clone(&script);
        let network = network.refusing(Arc::new(move |host, port| {
            refusing.connection_fault(host, Some(port), false).is_some()
        }));
        let host = self.host(scenario, &variation, &network, &clock, &script)?;
        let mut calls = Vec::new();
        for (index, call) in scenario.calls.iter().enumerate() {
            let cancellation = Cancellation::new();
            script.begin_call(index, call.key.as_deref(), cancellation.clone());
            let mut call = self.call(call).cancelled_by(&cancellation);
            let is_changed = variation.call == Some(index);
            if is_changed {
                call = call.limits(variation.limits);
                if let Some(scope) = self.scope_without(&variation)? {
                    call = call.within(scope);
                }
            }
            let CallResult { outcome, report } = host.run(call).await;
            calls.push(FinishedCall { outcome, report });
            if is_changed || script.has_failed() {
                break;
            }
        }
        host.flush().await;
        Ok(Execution { calls, end: script.end() })
    }

    fn host(
        &self,
        scenario: &Scenario,
        variation: &Variation,
        network: &LocalNetwork,
        clock: &Arc<ManualClock>,
        script: &Arc<Script>,
    ) -> Result<cofferdam_runtime::host::Host, HostError> {
        let bound = scenario.bindings.iter().filter(|binding| {
            let label = format!("{}/{}", binding.name.kind().name(), binding.name.service());
            variation.without_credential.as_ref() != Some(&label)
        });
        let time: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
        let listeners: [Arc<dyn Listener>; 2] =
            [Arc::<ManualClock>::clone(clock), Arc::<Script>::clone(script)];
        let log = MemoryLog::new(Arc::clone(&time));
        let builder = network
            .apply_to(self.builder())
            // No name but those of the local services exists: the authorities of real ones are never needed.
            .roots(RootCertificates::Bundled)
            .concurrency(1)
            .clock(time)
            .vault(Arc::new(MemoryVault::new(bound.cloned())))
            .audit_log(Arc::new(log));
        listeners.into_iter().fold(builder, HostBuilder::listener).build()
    }

    fn call(&self, call: &ScenarioCall) -> Call {
        let args = Value::Object(call.args.clone());
        let mut made = Call::new(self.connector.clone(), call.operation.clone(), args);
        if let Some(key) = &call.key {
            made = made.idempotency_key(key);
        }
        for (service, identity) in &call.identities {
            made = made.identity(service, identity);
        }
        made
    }

    /// Returns the scope of a call that may reach every host but one.
    fn scope_without(&self, variation: &Variation) -> Result<Option<ActionScope>, HostError> {
        let Some(denied) = &variation.without_host else { return Ok(None) };
        let hosts = self.tested.manifest().hosts().iter().filter(|host| *host != denied);
        let hosts: Vec<_> = hosts.map(ToString::to_string).collect();
        let scope = ActionScope::new("contract@1.0.0", self.tested.operations(), hosts);
        scope.map(Some).map_err(|error| not_started(&error))
    }
}

impl std::fmt::Debug for TestRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestRunner").field("connector", &self.connector).finish_non_exhaustive()
    }
}

fn not_started(error: &impl std::fmt::Display) -> HostError {
    HostError::new(HostErrorKind::Internal, "The local services could not be started.")
        .with_hint("See that this machine's loopback interface can be used.")
        .with_source(error.to_string())
}

/// Runs `work`, so much at once, and gives each result to `done` in the order of the work.
pub(crate) async fn in_order<T: Send + 'static>(
    work: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
    jobs: usize,
    mut done: impl FnMut(T),
) {
    let permits = Arc::new(Semaphore::new(jobs.max(1)));
    let mut running = JoinSet::new();
    let mut waiting = std::collections::BTreeMap::new();
    let (mut next, mut begun) = (0_usize, 0_usize);
    let mut work = work.into_iter().enumerate().peekable();
    while work.peek().is_some() || begun > next {
        // Work is begun only when there is room: a thousand scenarios are a thousand hosts.
        if work.peek().is_some()
            && let Ok(permit) = Arc::clone(&permits).try_acquire_owned()
            && let Some((at, future)) = work.next()
        {
            begun += 1;
            running.spawn(async move {
                let result = future.await;
                drop(permit);
                (at, result)
            });
            continue;
        }
        match running.join_next().await {
            Some(Ok((at, result))) => drop(waiting.insert(at, result)),
            // A panic of the host is not a result of the scenario.
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return,
            },
            None => return,
        }
        while let Some(result) = waiting.remove(&next) {
            next += 1;
            done(result);
        }
    }
}
