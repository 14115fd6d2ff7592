//! The database of circuits: private, and possibly missing, damaged, or replaced by another user.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_test_support::{Cli, Home, Signer, Upstream, package};
use rusqlite::{Connection, OptionalExtension as _};

use super::fixture::{Stage, stage, stage_alone};
use crate::COFFERDAM;
use crate::shared_host::run;

/// The database of the stage's circuits.
fn file_of(stage: &Stage) -> PathBuf {
    stage.home().path().join("circuits/circuits.db")
}

/// The state in the row of the stage's circuit, where it has one.
fn state_of(stage: &Stage) -> Option<String> {
    let table = Connection::open(file_of(stage)).unwrap();
    let select = "SELECT state FROM circuits WHERE host = ?";
    table.query_row(select, [stage.upstream.host_port()], |row| row.get(0)).optional().unwrap()
}

fn set_state(stage: &Stage, state: &str) {
    let table = Connection::open(file_of(stage)).unwrap();
    let update = "UPDATE circuits SET state = ? WHERE host = ?";
    assert_eq!(table.execute(update, [state, &stage.upstream.host_port()]).unwrap(), 1);
}

#[test]
fn an_open_circuit_is_in_a_private_file() {
    let stage = stage_alone();
    stage.answers();
    assert!(!file_of(&stage).exists(), "a healthy host has none");
    stage.fails("/status/503");
    let file = file_of(&stage);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert!(state_of(&stage).is_some());
    stage.skip(30);
    run(async {
        let (host, call) = (stage.host.clone(), stage.fetch("/hang/named"));
        let probe = tokio::spawn(async move { host.run(call).await });
        while stage.count("/hang/named") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Host names are in no file's name.
        let name = files_of(&stage).into_iter().find(|name| name.ends_with(".probe")).expect("a slot");
        let digits = name.trim_end_matches(".probe");
        assert!(digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
        assert_eq!(mode(&file.with_file_name(&name)), 0o600);
        probe.abort();
        probe.await.unwrap_err();
    });
    stage.answers();
    assert_eq!(
        (state_of(&stage), files_of(&stage)),
        (None, vec!["circuits.db".to_owned()]),
        "nothing is left of it"
    );
}

fn files_of(stage: &Stage) -> Vec<String> {
    let files = fs::read_dir(stage.home().path().join("circuits")).unwrap().flatten();
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// A host in a new process finds a circuit that another one stored.
#[test]
fn a_circuit_outlives_its_host() {
    let stage = stage();
    let first = stage.fails("/status/503");
    let builder = stage.home().builder_at(&stage.clock).allow_private(stage.upstream.host_port());
    let other = Stage {
        upstream: stage.upstream,
        clock: stage.clock.clone(),
        host: builder.build().unwrap(),
        own_home: None,
    };
    let refused = other.is_refused("/text/a", "open");
    assert_eq!(refused.details()["circuit"]["cause_audit_id"], first.audit_id().as_str());
    // A circuit closed by one process is closed for the other.
    other.skip(30);
    other.answers();
    stage.answers();
}

#[test]
fn what_is_no_circuit_counts_as_closed_and_stops_nobody() {
    let stage = stage_alone();
    let big = vec![b' '; 300 * 1024];
    stage.fails("/status/503");
    let file = file_of(&stage);
    let good = fs::read(&file).unwrap();
    let other = |sql: &str| {
        let path = stage.home().path().join("other.db");
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        bytes
    };
    let other_version = other("CREATE TABLE circuits (id INTEGER); PRAGMA user_version = 2");
    let other_table = other("CREATE TABLE circuits (id INTEGER); PRAGMA user_version = 1");
    for bad in [b"".as_slice(), b"{", b"null", &good[..40], &good[..4096], &big, &other_version, &other_table]
    {
        fs::write(&file, bad).unwrap();
        stage.answers();
        // It opens again, and its file is rewritten.
        stage.fails("/status/503");
        until_open(&stage);
        stage.is_refused("/text/no", "open");
        assert_ne!(fs::read(&file).unwrap(), bad);
    }
    let text = state_of(&stage).unwrap();
    for bad in [
        "",
        "{",
        "null",
        &text[..40],
        &text.replace("\"unavailable\"", "\"teapot\""),
        &text.replace("audit-", "<script>"),
    ] {
        set_state(&stage, bad);
        stage.answers();
        stage.fails("/status/503");
        until_open(&stage);
        stage.is_refused("/text/no", "open");
        assert_ne!(state_of(&stage).unwrap(), bad);
    }
    assert_eq!(stage.count("/text/no"), 0);
}

/// If others write at the same time, a call's observation is counted a little later.
fn until_open(stage: &Stage) {
    let mut tries = 0..400;
    while stage.circuit().is_none_or(|circuit| circuit.open.is_none()) {
        assert!(tries.next().is_some(), "it stays closed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Links are not followed, pipes not waited for, and what others may write is not believed.
#[test]
fn tricks_with_the_files_are_not_played_on_calls() {
    let stage = stage_alone();
    stage.fails("/status/503");
    let file = file_of(&stage);
    let aside = stage.home().path().join("aside.db");
    fs::rename(&file, &aside).unwrap();
    symlink(&aside, &file).unwrap();
    stage.answers();
    fs::remove_file(&file).unwrap();
    pipe(&file);
    stage.answers();
    fs::remove_file(&file).unwrap();
    fs::copy(&aside, &file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    stage.answers();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // Nor with the journal, which would be applied to the database.
    let journal = file.with_file_name("circuits.db-journal");
    symlink(&aside, &journal).unwrap();
    stage.answers();
    fs::remove_file(&journal).unwrap();
    stage.is_refused("/text/no", "open");
    fs::remove_file(&file).unwrap();
    fs::remove_file(&aside).unwrap();
}

fn pipe(path: &std::path::Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The command line shows what is open and closes it.
#[test]
fn breaker_status_and_reset() {
    let stage = stage();
    let cli = Cli::new(COFFERDAM, stage.home().path());
    let host = stage.upstream.host_port();
    let failure = stage.fails("/status/503");
    let shown = cli.run(&["breaker", "status"]).ok();
    let own = shown.split("\n\n").find(|part| part.contains(&host)).expect("the circuit is shown").to_owned();
    for part in [
        "github://cofferdam/probe at ",
        "unavailable (status 503)",
        failure.audit_id().as_str(),
        "asked again",
    ] {
        assert!(own.contains(part), "{part}: {own}");
    }
    let circuits = cli.run(&["breaker", "status", "--format", "json"]).json();
    let own = circuits.as_array().unwrap().iter().find(|circuit| circuit["host"] == host).unwrap();
    assert_eq!(own["open"]["cooldown_ms"], 60_000);
    assert_eq!(own["open"]["cause_audit_id"], failure.audit_id().as_str());

    cli.run(&["breaker", "reset"]).fails(2).said("--host");
    for bare in ["localhost", "localhost:0", "http://localhost:80"] {
        cli.run(&["breaker", "reset", "--host", bare]).fails(2).said("write it like localhost:8080");
    }
    let versioned = cli.run(&["breaker", "reset", "github://cofferdam/probe@0.1.0"]);
    versioned.fails(2).said("write \"github://cofferdam/probe\": it holds for every version");
    cli.run(&["breaker", "reset", "--all", "--host", &host]).fails(2).said("--all");
    let other = cli.run(&["breaker", "reset", "github://acme/other", "--host", &host]);
    assert!(other.ok().is_empty());
    stage.is_refused("/text/no", "open");
    let reset = cli.run(&["breaker", "reset", "github://cofferdam/probe", "--host", &host]);
    assert!(reset.ok().contains(&host));
    stage.answers();
}

/// A process that was stopped while it changed the table: calls neither fail nor wait because of it, and nothing else of
/// their process does.
#[test]
fn an_abandoned_circuit_lock_stops_no_call() {
    let stage = stage();
    // A separate home: the shared one has the circuits of other tests.
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    run(home.install(&package::guest_package("probe", &[stage.upstream.grant()]), &signer)).unwrap();
    let host = home.builder().allow_private(stage.upstream.host_port()).build().unwrap();
    run(host.run(stage.fetch("/text/warm"))).outcome.unwrap();
    // There is a table once a call has failed.
    run(host.run(stage.fetch("/status/500/first"))).outcome.unwrap_err();
    host.reset_circuits(None, None).unwrap();
    let turn = Connection::open(home.path().join("circuits/circuits.db")).unwrap();
    turn.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let windowed = RetryProfile::named("failover-windowed").unwrap();
    run(async {
        let running = Arc::new(AtomicBool::new(true));
        let ticks = tokio::spawn({
            let running = Arc::clone(&running);
            async move {
                let mut longest = Duration::ZERO;
                while running.load(Ordering::SeqCst) {
                    let before = Instant::now();
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    longest = longest.max(before.elapsed());
                }
                longest
            }
        });
        let calls: Vec<_> = (0..6)
            .map(|n| {
                let limits = LimitRequest::parse(None, Some("2s"), None).unwrap();
                let call =
                    stage.fetch(&format!("/status/500/{n}")).retry(Arc::clone(&windowed)).limits(limits);
                let host = host.clone();
                tokio::spawn(async move {
                    let begun = Instant::now();
                    (host.run(call).await.outcome.map(drop).unwrap_err(), begun.elapsed())
                })
            })
            .collect();
        for call in calls {
            let (_, took) = call.await.unwrap();
            assert!(took < Duration::from_secs(4), "a call of two seconds took {took:?}");
        }
        running.store(false, Ordering::SeqCst);
        let longest = ticks.await.unwrap();
        assert!(longest < Duration::from_secs(1), "a timer of 10 ms took {longest:?}");
    });
    drop(turn);
}

/// An operator sees that a call is trying the host, for as long as it does.
#[test]
fn breaker_status_shows_a_running_probe() {
    let stage = stage();
    let cli = Cli::new(COFFERDAM, stage.home().path());
    // The command has no clock that is skipped. To it this opened in the future: then the next call tries.
    stage.skip(100_000);
    stage.fails("/status/503");
    stage.skip(30);
    let is_out = |stage: &Stage| stage.circuit().unwrap().open.unwrap().probe_is_out;
    assert!(!is_out(&stage));
    run(async {
        let (host, call) = (stage.host.clone(), stage.fetch("/hang/looked-at"));
        let probe = tokio::spawn(async move { host.run(call).await.outcome });
        while stage.count("/hang/looked-at") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(is_out(&stage));
        let shown = cli.run(&["breaker", "status"]).ok();
        let own = shown.split("\n\n").find(|part| part.contains(&stage.upstream.host_port())).unwrap();
        assert!(own.contains("a probe is out"), "{own}");
        // A status query takes no probe: other calls are refused, and there is still one request.
        stage.host.run(stage.fetch("/text/no")).await.outcome.unwrap_err();
        probe.abort();
        probe.await.unwrap_err();
    });
    assert!(!is_out(&stage));
    stage.answers();
    assert_eq!((stage.count("/hang/looked-at"), stage.count("/text/no")), (1, 0));
}

/// A call looks at a circuit before each attempt, after it, and when it counts what it saw.
#[test]
fn a_damaged_circuit_is_one_warning() {
    let (home, signer, upstream) = (Home::new(COFFERDAM), Signer::new(), Upstream::start());
    home.trust(&signer.public(), "github://cofferdam/*");
    run(home.install(&package::guest_package("probe", &[upstream.grant()]), &signer)).unwrap();
    let config = format!(
        "[network]\nallow_private = [\"{}\"]\n[breaker]\npolicy = \"at-once\"\n[retry]\nprofile = \"brisk\"\n\
         [retry.profiles.brisk]\nretryable = true\nmax_attempts = 3\n\
         backoff = {{ kind = \"fixed\", base = \"1ms\" }}\nclassifier = {{ retry_on = [\"unavailable\"] }}\n",
        upstream.host_port()
    );
    fs::write(home.path().join("config.toml"), config).unwrap();
    let cli = Cli::new(COFFERDAM, home.path());
    let url = format!("url={}", upstream.url("/status/503"));
    let fails = || cli.run(&["call", "github://cofferdam/probe", "fetch", "--arg", &url]).fails(76).stderr;
    fails();
    let file = home.path().join("circuits/circuits.db");
    let damage_the_row = || {
        let table = Connection::open(&file).unwrap();
        assert_eq!(table.execute("UPDATE circuits SET state = '{'", []).unwrap(), 1);
    };
    let damage_the_file = || fs::write(&file, "{}").unwrap();
    for (damage, seen) in [(&damage_the_row as &dyn Fn(), 6), (&damage_the_file, 9)] {
        damage();
        let said = fails();
        assert_eq!(upstream.seen("/status/503").len(), seen, "it counts as closed");
        let warnings: Vec<_> = said.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), 1, "{said}");
    }
}
