//! One run: the cluster is set up, clients and faults do what the plan says, and the histories are collected.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cofferdam_core::digest::Digest;
use cofferdam_history::{Histories, Verdict, check};
use cofferdam_test_support::{Home, Signer, package};
use serde::Serialize;
use serde_json::{Value, json};

use super::client::Clients;
use super::faults::Targets;
use super::fleet::Member;
use super::plan::{Plan, STEPS, Size};
use super::upstream::Upstream;

pub(super) const PROBE: &str = "github://cofferdam/probe";

/// The name of the action of three steps.
pub(super) const ACTION: &str = "settle-order";

/// Three attempts, with hardly a wait between them, and no circuit: the upstream fails at random, not for a time.
const CONFIG: &str = "[retry]\nprofile = \"quick\"\n[retry.profiles.quick]\nretryable = true\nmax_attempts = 3\n\
                      backoff = { kind = \"fixed\", base = \"5ms\" }\n\
                      classifier = { retry_on = [\"unavailable\", \"network_error\"] }\n";

/// The hosts of a cluster.
pub(super) const HOSTS: usize = 3;

/// What a run ended with.
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    /// The faults that hit something.
    pub(super) hits: usize,
    /// The directory with the histories.
    pub(super) dir: PathBuf,
}

/// A directory below the build's temporary one, empty.
pub(super) fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Prepares a home: the probe, the action, and the configuration.
pub(super) async fn prepare(home: &Home, upstream: &Upstream, config: &str) {
    let signer = Signer::new();
    home.trust(&signer.public(), "github://cofferdam/*");
    let bytes = package::guest_package("probe", &[upstream.origin()]);
    home.install(&bytes, &signer).await.unwrap();
    let host_port = upstream.host_port();
    let config = format!("[network]\nallow_private = [\"{host_port}\"]\n{CONFIG}{config}");
    fs::write(home.path().join("config.toml"), config).unwrap();
    let origin = upstream.origin();
    let mut text = format!(
        "+++\nname = \"{ACTION}\"\nversion = \"1.0.0\"\ntimeout = \"60s\"\n[[requires.connectors]]\nname = \"{PROBE}\"\n\
         version = \"0.1.0\"\nhash = \"sha256:{}\"\n\
         capabilities = {{ operations = [\"order\", \"order_once\"], hosts = [\"{origin}\"] }}\n\
         [[inputs]]\nname = \"name\"\ntype = \"string\"\ndescription = \"The order.\"\n",
        Digest::sha256(&bytes)
    );
    let mut body = "first".to_owned();
    for (step, repeatable) in STEPS {
        let op = if repeatable { "order" } else { "order_once" };
        let url = format!("{origin}/effect/${{args.name}}/{step}");
        text.push_str(&format!(
            "[[execute]]\nid = \"{step}\"\nconnector = \"{PROBE}\"\nop = \"{op}\"\n\
             inputs = {{ url = \"{url}\", body = \"{body}\", labels = [\"effect\"] }}\n"
        ));
        body = format!("${{steps.{step}.body}}");
    }
    text.push_str("+++\nThree effects under one key.\n");
    let dir = home.path().join("actions");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).unwrap();
    let mut options = fs::OpenOptions::new();
    let mut file =
        options.write(true).create_new(true).mode(0o600).open(dir.join(format!("{ACTION}.md"))).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// The clients of a run, which know where the hosts are.
pub(super) fn clients(begun: Instant, hosts: &[Arc<Member>], upstream: &Upstream) -> Arc<Clients> {
    Arc::new(Clients {
        begun,
        hosts: hosts.iter().map(|host| Arc::clone(&host.address)).collect(),
        upstream: upstream.origin(),
        connector: PROBE,
        action: ACTION,
        exchanges: Mutex::default(),
        done: AtomicUsize::new(0),
    })
}

/// Does all operations of the plan, with its faults; returns the number of faults that hit.
pub(super) async fn drive(size: &Size, plan: &Arc<Plan>, clients: &Arc<Clients>, targets: &Targets) -> usize {
    let mut tasks = tokio::task::JoinSet::new();
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..size.clients {
        let (plan, clients, next) = (Arc::clone(plan), Arc::clone(clients), Arc::clone(&next));
        tasks.spawn(async move {
            while let Some(operation) = plan.operations.get(next.fetch_add(1, Ordering::SeqCst)) {
                clients.does(operation).await;
            }
        });
    }
    let hits = targets.inject(&plan.faults, clients, plan.operations.len()).await;
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    hits
}

/// Checks that every host gives the same answers: about interrupted calls, the calls in the log, and its integrity.
pub(super) fn hosts_agree(members: &[Arc<Member>]) {
    // What may be repeated is, by one of them.
    let _ = members[0].run(&["recover", "resume", "--all"]);
    let asked = |args: &[&str]| members.iter().map(|member| member.run(args).json()).collect::<Vec<Value>>();
    for args in
        [&["recover", "list", "--format", "json"][..], &["audit", "list", "--limit", "0", "--format", "json"]]
    {
        let answers = asked(args);
        for answer in &answers[1..] {
            assert_eq!(*answer, answers[0], "{args:?}: the hosts do not agree");
        }
    }
    for member in members {
        member.run(&["audit", "verify"]).ok();
    }
}

/// The lines of the journals in a home, as an export has them.
pub(super) fn journal_lines(home: &Home) -> Vec<u8> {
    let (mut text, mut before) = (Vec::new(), PathBuf::new());
    for segment in home.segments() {
        let journal = segment.parent().unwrap().to_owned();
        if journal != before {
            let name = journal.file_name().unwrap().to_string_lossy().into_owned();
            let header = json!({"journal": name, "after": {"n": 0, "hash": "0".repeat(64)}});
            text.extend(format!("{header}\n").into_bytes());
            before = journal;
        }
        text.extend(fs::read(segment).unwrap());
    }
    text
}

/// Writes the histories into the directory and has them checked.
pub(super) fn judge(dir: &Path, plan: &Plan, clients: &Clients, upstream: &Upstream, log: &[u8]) -> Verdict {
    write_lines(&dir.join("plan.jsonl"), &plan.keys());
    write_lines(&dir.join("answers.jsonl"), &clients.exchanges.lock().unwrap());
    write_lines(&dir.join("effects.jsonl"), &upstream.effects());
    fs::write(dir.join("log.jsonl"), log).unwrap();
    check(&Histories::read(dir).unwrap())
}

fn write_lines<T: Serialize>(path: &Path, items: &[T]) {
    let lines: String = items.iter().map(|item| serde_json::to_string(item).unwrap() + "\n").collect();
    fs::write(path, lines).unwrap();
}
