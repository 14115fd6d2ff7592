//! Development of connectors. Nothing here is part of a host that serves calls: the CLI uses it in `dev`, `test` and
//! `call --dev`.
//!
//! A connector under development runs byte for byte as it ships, in the real host: the manifest names the real
//! hosts, the guest speaks TLS to them, and every gate applies. The difference is outside of the sandbox. Names of
//! mapped services resolve to the loopback interface ([`LocalNetwork`]), where a certificate authority that lives in
//! this process ([`LocalAuthority`]) answers for them, and the home trusts a key that no other home has
//! ([`DevHome`]).

mod authority;
mod bindings;
mod clock;
mod contract;
mod home;
mod memory_log;
mod network;
mod record;
mod runner;
mod scenario;
mod service;
mod upstream;
mod watch;

pub use authority::{CertificateError, LocalAuthority};
pub use bindings::{MemoryVault, made_up_binding, test_binding};
pub use clock::{ManualClock, RecordedStep};
pub use contract::{
    ContractOutcome, ContractReport, ContractRule, Finding, Headroom, OperationReport, SuggestedLimits, prove,
};
pub use home::DevHome;
pub use network::{LocalNetwork, RefuseConnection};
pub use record::{RealNetwork, RecordedFile, RecordedScenario, Recording};
pub use runner::{CallSummary, Problem, ProblemKind, ScenarioReport, TestRunner, junit_xml};
pub use scenario::{
    Difference, Place, SCENARIO_EXTENSIONS, Scenario, ScenarioCall, TestedConnector, parse_scenarios,
};
pub use upstream::{LocalTarget, UpstreamError, UpstreamMapping};
pub use watch::Watcher;
