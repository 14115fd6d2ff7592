//! The proof: under faults, nothing acknowledged is lost and nothing is done twice.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::{Duration, Instant};

use cofferdam_history::{FindingKind, Verdict};

use super::cluster::{Cluster, Setup};
use super::has_services;
use super::plan::{Fault, Size};
use super::run::Outcome;

/// Runs on a runtime of its own: the servers and clients of a run end with it.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let output = runtime.block_on(future);
    runtime.shutdown_timeout(Duration::from_secs(5));
    output
}

/// Reports a run past the capture of the test's output.
fn report(name: &str, size: &Size, outcome: &Outcome, time: Duration) {
    let Outcome { verdict, hits, dir } = outcome;
    let _ = writeln!(
        std::io::stderr(),
        "\n{name}: seed {}, {} calls and {} actions by {} clients, {hits} faults, {time:.0?}; {}\n{verdict}",
        size.seed,
        size.calls,
        size.actions,
        size.clients,
        dir.display(),
    );
}

/// The kinds of answers that faults explain.
const EXPECTED: [&str; 15] = [
    "value",
    "replayed value",
    "network_error",
    "external_api_error",
    "accepted",
    "pending",
    "connection lost",
    "busy",
    "audit_unavailable",
    "queue_unavailable",
    "closing",
    "cancelled",
    "in_progress",
    "outcome_unknown",
    "resource_limit_exceeded",
];

/// Asserts that the run proved something, and that nothing is wrong.
fn is_right(size: &Size, verdict: &Verdict) {
    let counts = &verdict.counts;
    assert!(verdict.findings.is_empty(), "seed {}: {} findings", size.seed, verdict.findings.len());
    assert_eq!(counts.keys, size.calls + size.actions);
    assert_eq!(counts.unanswered, 0, "clients gave up");
    assert!(counts.values * 10 > counts.keys * 8, "too few operations have a value");
    let expected = |kind: &String| EXPECTED.contains(&kind.as_str());
    assert!(counts.answers.keys().all(expected), "an unexpected answer");
}

/// Runs on a cluster, reports it and asserts that nothing is wrong.
fn proves(name: &str, size: Size, setup: &Setup) {
    let (size, begun) = (size.or_environment(), Instant::now());
    let outcome = block_on(async {
        let cluster = Cluster::start(name, Some(size.seed), begun, setup).await;
        let outcome = cluster.run(&size, begun).await;
        report(name, &size, &outcome, begun.elapsed());
        is_right(&size, &outcome.verdict);
        cluster.agrees();
        outcome
    });
    assert!(outcome.hits >= size.faults * 9 / 10, "{} of {} faults hit", outcome.hits, size.faults);
}

#[test]
fn hosts_on_one_home_lose_and_repeat_nothing() {
    let size = Size { seed: 20, calls: 800, actions: 80, faults: 20, clients: 16 };
    proves("home", size, &Setup::default());
}

#[test]
fn jobs_on_one_home_lose_and_repeat_nothing() {
    if !has_services() {
        return;
    }
    let size = Size { seed: 21, calls: 400, actions: 40, faults: 16, clients: 16 };
    proves("home-jobs", size, &Setup { has_jobs: true, ..Setup::default() });
}

#[test]
fn hosts_on_one_database_lose_and_repeat_nothing() {
    if !has_services() {
        return;
    }
    let size = Size { seed: 22, calls: 400, actions: 40, faults: 16, clients: 16 };
    proves("database", size, &Setup { has_database: true, ..Setup::default() });
}

#[test]
fn a_cluster_loses_and_repeats_nothing() {
    if !has_services() {
        return;
    }
    let size = Size { seed: 23, calls: 2_000, actions: 200, faults: 100, clients: 16 };
    proves("cluster", size, &Setup { has_database: true, has_jobs: true, ..Setup::default() });
}

/// Runs with a planted defect and returns the kinds of its findings.
fn planted(name: &str, size: &Size, setup: &Setup, faults: Option<Vec<Fault>>) -> BTreeSet<FindingKind> {
    let begun = Instant::now();
    let outcome = block_on(async {
        let cluster = Cluster::start(name, Some(size.seed), begun, setup).await;
        match faults {
            Some(faults) => cluster.run_with(size, faults, begun).await,
            None => cluster.run(size, begun).await,
        }
    });
    report(name, size, &outcome, begun.elapsed());
    outcome.verdict.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn acknowledging_before_the_commit_is_found() {
    if !has_services() {
        return;
    }
    // The first host tells outcomes, waits before it sends them to the database, and is killed meanwhile.
    let setup = Setup {
        has_database: true,
        first_failpoints: "close.early=skip,early.told:5=pause",
        ..Setup::default()
    };
    let size = Size { seed: 24, calls: 200, actions: 0, faults: 1, clients: 16 };
    let kill = Fault::KillHost { host: 0, after_ms: 0 };
    let found = planted("planted-close.early", &size, &setup, Some(vec![kill]));
    assert_eq!(found, BTreeSet::from([FindingKind::Lost]));
}

/// The most runs until a key that two hosts took at the same moment must have been found.
const ATTEMPTS: u64 = 6;

#[test]
fn a_key_check_without_a_constraint_is_found() {
    if !has_services() {
        return;
    }
    // Commits are slow, so that two hosts are often within them.
    let setup = Setup {
        has_database: true,
        failpoints: "key.unchecked=skip",
        postgres: vec!["commit_delay=30000", "commit_siblings=0"],
        ..Setup::default()
    };
    let kinds = [FindingKind::Doubled, FindingKind::TwoOutcomes];
    let is_found = (1..=ATTEMPTS).any(|seed| {
        let size = Size { seed, calls: 600, actions: 0, faults: 30, clients: 16 };
        let found = planted("planted-key.unchecked", &size, &setup, None);
        assert!(found.iter().all(|kind| kinds.contains(kind)), "{found:?}");
        found.contains(&FindingKind::Doubled)
    });
    assert!(is_found, "it was not found with {ATTEMPTS} seeds");
}
