//! Several processes at one circuit: an observation of one applies to all, and only one probes the host.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam::{Call, Compiler, Error, Host};
use cofferdam_egress::resilience::RetryProfile;
use cofferdam_test_support::{Cli, Home, Signer, Upstream, package};
use serde_json::{Value, json};

use super::fixture::{Stage, stage};
use crate::COFFERDAM;
use crate::shared_host::{example, run};

/// The home and the arguments of a process that a test starts.
const HOME: &str = "COFFERDAM_TEST_BREAKER_HOME";
const URL: &str = "COFFERDAM_TEST_BREAKER_URL";

/// Not a test: run by the processes of the tests below. One call, and its outcome on standard output.
#[test]
#[ignore = "the other tests run it as a process of its own"]
fn one_call_in_a_process_of_its_own() {
    let (Ok(home), Ok(url)) = (std::env::var(HOME), std::env::var(URL)) else { return };
    let host_port = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let host = Host::builder().home(home).compiler(Compiler::child(COFFERDAM)).allow_private(host_port);
    let host = host.build().unwrap();
    let call = Call::new(example("probe"), "fetch", json!({"url": url}));
    let outcome = match run(host.run(call.retry(RetryProfile::named("failover").unwrap()))).outcome {
        Ok(_) => json!({"value": true}),
        Err(Error::Failure(failure)) => serde_json::to_value(&failure).unwrap(),
        Err(Error::Host(error)) => serde_json::to_value(&error).unwrap(),
    };
    // The harness prints other lines: only this line begins so.
    writeln!(std::io::stdout(), "\noutcome {outcome}").unwrap();
}

/// A process that gets `path`.
fn start(stage: &Stage, path: &str) -> Child {
    let test = "breaker::processes::one_call_in_a_process_of_its_own";
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(HOME, stage.home().path())
        .env(URL, stage.upstream.url(path))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Its final output.
fn outcome(mut child: Child) -> Value {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let line =
        text.lines().find_map(|line| line.strip_prefix("outcome ")).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(line).unwrap()
}

fn state_in(outcome: &Value) -> &Value {
    assert_eq!(outcome["error"]["details"]["code"], "circuit_open", "{outcome}");
    &outcome["error"]["details"]["circuit"]["state"]
}

/// Waits until the server has received a request for `path`.
fn asked(stage: &Stage, path: &str) {
    let patience = Instant::now() + Duration::from_secs(120);
    while stage.count(path) == 0 {
        assert!(Instant::now() < patience, "nobody asks for {path}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn one_process_probes_a_half_open_circuit() {
    const PROCESSES: usize = 5;
    let stage = stage();
    // It opens, and may be probed at once, as the server's response allows.
    stage.fails("/status/429?retry_after=0");
    assert_eq!(stage.state(), "half_open");
    let mut children: Vec<_> = (0..PROCESSES).map(|_| start(&stage, "/hang/probe")).collect();
    asked(&stage, "/hang/probe");
    // The one that was sent waits for its answer; the others end.
    let mut ended = Vec::new();
    while children.len() > 1 {
        let done = children.iter_mut().position(|child| child.try_wait().unwrap().is_some());
        match done {
            Some(done) => ended.push(outcome(children.remove(done))),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    assert!(ended.iter().all(|outcome| state_in(outcome) == "half_open"), "{ended:?}");
    assert_eq!(stage.count("/hang/probe"), 1, "{PROCESSES} processes are one request");
    // This process is refused as well, until the kernel releases the killed one's lock.
    stage.is_refused("/text/no", "half_open");
    let mut prober = children.pop().unwrap();
    prober.kill().unwrap();
    prober.wait().unwrap();
    assert_eq!(outcome(start(&stage, "/text/well")), json!({"value": true}));
    assert_eq!(stage.state(), "closed", "what another process saw holds here");
    assert_eq!(stage.count("/text/no"), 0);
}

#[test]
fn an_open_circuit_is_shared_by_processes() {
    let stage = stage();
    let first = outcome(start(&stage, "/status/503"));
    let refused = stage.is_refused("/text/no", "open");
    assert_eq!(refused.details()["circuit"]["cause_audit_id"], first["error"]["audit_id"]);
    assert_eq!(state_in(&outcome(start(&stage, "/text/no"))), "open");
    stage.host.reset_circuits(None, Some(&stage.host_port())).unwrap();
    assert_eq!(outcome(start(&stage, "/text/well")), json!({"value": true}));
    assert_eq!(stage.count("/text/no"), 0);
}

/// The command line, switched on in `config.toml`: each command is a process, and they share what they saw.
#[test]
fn commands_share_the_breaker_of_the_configuration() {
    let (home, upstream, signer) = (Home::new(COFFERDAM), Upstream::start(), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    run(home.install(&package::guest_package("probe", &[upstream.grant()]), &signer)).unwrap();
    let config = format!(
        "[network]\nallow_private = [\"{}\"]\n[retry]\nprofile = \"none\"\n[breaker]\nthreshold = 2\n",
        upstream.host_port()
    );
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let cli = Cli::new(COFFERDAM, home.path());
    let call = |path: &str| {
        let args = json!({"url": upstream.url(path)}).to_string();
        let ran = cli.run(&["call", "github://cofferdam/probe", "fetch", &args, "--format", "json"]);
        (ran.code, serde_json::from_str::<Value>(&ran.stdout).unwrap_or_default())
    };
    let (code, first) = call("/status/503/a");
    assert_eq!(first["error"]["details"]["code"], "unavailable", "{first}");
    let (_, second) = call("/status/503/b");
    let (refused_code, refused) = call("/status/503/c");
    assert_eq!(state_in(&refused), "open", "the second one opened it");
    assert_eq!(refused_code, code, "the class, and so the exit code, is that of what opened it");
    assert_eq!(refused["error"]["details"]["circuit"]["cause_audit_id"], second["error"]["audit_id"]);
    assert_eq!(upstream.seen("/status/503").len(), 2);
    // For people the same is words.
    let args = json!({"url": upstream.url("/status/503/d")}).to_string();
    let said = cli.run(&["call", "github://cofferdam/probe", "fetch", &args]).stderr;
    let seen_by = second["error"]["audit_id"].as_str().unwrap();
    for part in
        [&format!("circuit: open, because of unavailable (seen by {seen_by}), since 2"), ", tried again in "]
    {
        assert!(said.contains(part) && !said.contains("{\""), "{said}");
    }
    let table = rusqlite::Connection::open(home.path().join("circuits/circuits.db")).unwrap();
    table.execute("INSERT INTO circuits VALUES ('github://acme/other', 'damaged:1', '{')", []).unwrap();
    let reset = cli.run(&["breaker", "reset", "--all"]).ok();
    assert!(reset.contains(&upstream.host_port()) && reset.contains("one entry that was damaged"), "{reset}");
    assert_eq!(cli.run(&["breaker", "reset", "--all", "--format", "json"]).json()["damaged_removed"], 0);
    cli.run(&["breaker", "status"]).said("Every circuit is closed.");
    assert_eq!(call("/text/well").0, Some(0));
}
