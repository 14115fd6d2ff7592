//! Where circuits are kept: small files of their owner's, which may be missing, damaged, or somebody's trick.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cofferdam_core::limits::LimitRequest;
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_test_support::{Cli, Home, Signer, Upstream, package};

use super::stage::{Stage, stage};
use crate::COFFERDAM;
use crate::world::run;

/// The file of the stage's circuit: the only one that names its server.
fn file_of(stage: &Stage) -> PathBuf {
    let host = format!("\"{}\"", stage.upstream.host_port());
    let files =
        fs::read_dir(stage.home().path().join("circuits")).unwrap().flatten().map(|entry| entry.path());
    let mut files = files.filter(|file| fs::read_to_string(file).is_ok_and(|text| text.contains(&host)));
    files.next().expect("a file for the circuit")
}

#[test]
fn a_circuit_is_a_private_file_while_it_is_not_closed() {
    let stage = stage();
    stage.answers();
    stage.fails("/status/503");
    let file = file_of(&stage);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let name = file.file_stem().unwrap().to_str().unwrap();
    assert!(name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
    stage.skip(30);
    stage.answers();
    assert!(!file.exists() && !file.with_extension("probe").exists(), "nothing is left of it");
}

/// A host of a process that has seen nothing finds what another has kept.
#[test]
fn a_circuit_outlives_its_host() {
    let stage = stage();
    let first = stage.fails("/status/503");
    let builder = stage.home().builder_at(&stage.clock).allow_private(stage.upstream.host_port());
    let other =
        Stage { upstream: stage.upstream, clock: stage.clock.clone(), host: builder.build().unwrap() };
    let refused = other.is_refused("/text/a", "open");
    assert_eq!(refused.details()["circuit"]["cause_audit_id"], first.audit_id().as_str());
    // What one closes is closed for the other.
    other.skip(30);
    other.answers();
    stage.answers();
}

#[test]
fn what_is_no_circuit_counts_as_closed_and_stops_nobody() {
    let stage = stage();
    let big = vec![b' '; 300 * 1024];
    stage.fails("/status/503");
    let file = file_of(&stage);
    let good = fs::read(&file).unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let other_host = text.replace("localhost", "elsewhere").into_bytes();
    let other_version = text.replace("\"version\":1", "\"version\":2").into_bytes();
    let other_cause = text.replace("\"unavailable\"", "\"teapot\"").into_bytes();
    let other_id = text.replace("audit-", "<script>").into_bytes();
    for bad in [
        b"".as_slice(),
        b"{",
        b"null",
        &good[..40],
        &big,
        &other_host,
        &other_version,
        &other_cause,
        &other_id,
    ] {
        fs::write(&file, bad).unwrap();
        stage.answers();
        // It opens again, and is written anew, as it should be.
        stage.fails("/status/503");
        until_open(&stage);
        stage.is_refused("/text/no", "open");
        assert_ne!(fs::read(&file).unwrap(), bad);
    }
    assert_eq!(stage.count("/text/no"), 0);
}

/// Where others write at the same time, what a call saw is counted a little later.
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
    let stage = stage();
    stage.fails("/status/503");
    let file = file_of(&stage);
    let aside = stage.home().path().join("aside.json");
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

/// A process that was stopped while it had the turn: calls neither fail nor wait because of it, and nothing else of
/// their process does.
#[test]
fn a_turn_that_nobody_gives_back_stops_no_call() {
    let stage = stage();
    // A home of its own: the others' circuits are in the shared one.
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    run(home.install(&package::guest_package("probe", &[stage.upstream.grant()]), &signer)).unwrap();
    let host = home.builder().allow_private(stage.upstream.host_port()).build().unwrap();
    run(host.run(stage.fetch("/text/warm"))).unwrap();
    let dir = home.path().join("circuits");
    fs::create_dir_all(&dir).unwrap();
    let turn = fs::File::create(dir.join("lock")).unwrap();
    turn.lock().unwrap();
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
                    (host.run(call).await.map(drop).unwrap_err(), begun.elapsed())
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
fn breaker_status_says_that_a_probe_is_out() {
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
        let probe = tokio::spawn(async move { host.run(call).await });
        while stage.count("/hang/looked-at") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(is_out(&stage));
        let shown = cli.run(&["breaker", "status"]).ok();
        let own = shown.split("\n\n").find(|part| part.contains(&stage.upstream.host_port())).unwrap();
        assert!(own.contains("a probe is out"), "{own}");
        // Looking takes nothing: whoever comes is refused, and there is still one request.
        stage.host.run(stage.fetch("/text/no")).await.unwrap_err();
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
    let files = fs::read_dir(home.path().join("circuits")).unwrap().flatten().map(|entry| entry.path());
    let file = files.into_iter().find(|file| file.extension().is_some_and(|it| it == "json")).unwrap();
    fs::write(file, "{").unwrap();
    let said = fails();
    assert_eq!(upstream.seen("/status/503").len(), 6, "it counts as closed");
    let warnings: Vec<_> = said.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{said}");
}
