//! The proof: under faults, nothing acknowledged is lost and nothing is done twice.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::{Duration, Instant};

use cofferdam_history::{FindingKind, Verdict};

use super::cluster::{Cluster, Setup};
use super::has_services;
use super::plan::Size;
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

/// Runs with a planted defect until it is found, with one seed after another; the findings are all of these kinds, and
/// some of the first.
fn finds(failpoint: &str, kinds: &[FindingKind]) {
    if !has_services() {
        return;
    }
    let env = vec![("COFFERDAM_FAILPOINTS".to_owned(), format!("{failpoint}=skip"))];
    // A database with slow commits: kills hit between an answer and its commit.
    let postgres = vec!["commit_delay=30000", "commit_siblings=0"];
    let setup = Setup { has_database: true, env, postgres, ..Setup::default() };
    for seed in 1..=ATTEMPTS {
        let (name, begun) = (format!("planted-{failpoint}"), Instant::now());
        let size = Size { seed, calls: 600, actions: 0, faults: 30, clients: 16 };
        let outcome = block_on(async {
            let cluster = Cluster::start(&name, Some(seed), begun, &setup).await;
            cluster.run(&size, begun).await
        });
        report(&name, &size, &outcome, begun.elapsed());
        let found: BTreeSet<_> = outcome.verdict.findings.iter().map(|finding| finding.kind).collect();
        assert!(found.iter().all(|kind| kinds.contains(kind)), "{failpoint}: {found:?}");
        if found.contains(&kinds[0]) {
            return;
        }
    }
    panic!("{failpoint} was not found with {ATTEMPTS} seeds");
}

/// The most runs until a planted defect must have been found.
const ATTEMPTS: u64 = 6;

#[test]
fn acknowledging_before_the_commit_is_found() {
    finds("close.early", &[FindingKind::Lost]);
}

#[test]
fn a_key_check_without_a_constraint_is_found() {
    finds("key.unchecked", &[FindingKind::Doubled, FindingKind::TwoOutcomes]);
}
