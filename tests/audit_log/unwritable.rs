//! An unwritable log, from real causes: nothing runs that could not be recorded, and no unrecorded outcome is
//! reported.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cofferdam::{Call, Host, HostErrorKind};
use cofferdam_audit::CallStatus;
use cofferdam_core::clock::{Clock, SleepFuture, SystemClock};
use cofferdam_runtime::call::{CallResult, OnKeyConflict};
use cofferdam_test_support::{Home, Signer};
use serde_json::json;

use crate::COFFERDAM;
use crate::shared_host::{begin, example, refused, run, shared_host};

/// The machine's clock, except that the log's waits end at once and are recorded.
#[derive(Default)]
struct Brisk(Mutex<Vec<u64>>);

impl Clock for Brisk {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn timestamp(&self) -> jiff::Timestamp {
        SystemClock.timestamp()
    }

    fn sleep_until(&self, deadline: Instant) -> SleepFuture {
        let wait = deadline.saturating_duration_since(SystemClock.now());
        // Rounded up: it was requested a moment ago.
        let seconds = u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap();
        match [2, 4, 6].contains(&seconds) {
            true => {
                self.0.lock().unwrap().push(seconds);
                Box::pin(std::future::ready(()))
            }
            false => SystemClock.sleep_until(deadline),
        }
    }
}

struct Desk {
    home: Home,
    clock: Arc<Brisk>,
}

impl Desk {
    fn new() -> Self {
        let (home, signer) = (Home::new(COFFERDAM), Signer::new());
        home.trust(&signer.public(), "github://cofferdam/*");
        let probe = shared_host().packages.iter().find(|(name, _)| *name == "probe").unwrap();
        run(home.install(&probe.1, &signer)).unwrap();
        Self { home, clock: Arc::default() }
    }

    fn host(&self) -> Host {
        let time = Arc::clone(&self.clock);
        let builder = self.home.builder_alone().clock(time).allow_private(shared_host().upstream.host_port());
        builder.build().unwrap()
    }

    fn waits(&self) -> Vec<u64> {
        std::mem::take(&mut self.clock.0.lock().unwrap())
    }

    /// Another process's lock on the idempotency keys.
    fn lock(&self) -> fs::File {
        let file = fs::File::open(self.home.path().join("audit/keys.lock")).unwrap();
        file.lock().unwrap();
        file
    }
}

fn post(path: &str) -> Call {
    Call::new(example("probe"), "post", json!({"url": shared_host().upstream.url(path), "body": "b"}))
}

fn count(path: &str) -> usize {
    shared_host().upstream.seen(path).len()
}

#[test]
fn nothing_runs_if_the_log_cannot_be_opened() {
    let desk = Desk::new();
    let path = "/text/unwritable?begin";
    let file = desk.home.path().join("audit");
    let refused_for = |words: &str| {
        let host = desk.host();
        let error = refused(run(host.run(post(path))).outcome);
        assert_eq!(error.kind(), HostErrorKind::AuditUnavailable, "{error}");
        assert!(error.message().contains(words) && error.message().contains("not run"), "{error}");
        let shown = serde_json::to_string(&error).unwrap();
        assert!(!shown.contains(desk.home.path().to_str().unwrap()), "{shown}");
        assert_eq!(desk.waits(), [2, 4, 6]);
        // The next call of this host does not wait for what is known not to be there.
        let error = refused(run(host.run(post(path))).outcome);
        assert_eq!((error.kind(), desk.waits()), (HostErrorKind::AuditUnavailable, Vec::new()));
        // The reason for refusing a call is still reported, and at once.
        let error = refused(run(desk.host().run(Call::new(example("probe"), "nothing", json!({})))).outcome);
        assert_eq!((error.kind(), desk.waits()), (HostErrorKind::OpNotFound, Vec::new()));
    };
    fs::write(&file, "no directory").unwrap();
    refused_for("it cannot be written");
    let host = desk.host();
    let error = refused(run(host.run(post(path))).outcome);
    assert_eq!((error.kind(), desk.waits()), (HostErrorKind::AuditUnavailable, vec![2, 4, 6]));
    fs::remove_file(&file).unwrap();
    assert_eq!(count(path), 0);
    run(host.run(post(path))).outcome.unwrap();
    assert_eq!((count(path), desk.waits()), (1, Vec::new()));

    // The key that seals: readable by others, it proves nothing.
    let key = desk.home.path().join("host.key");
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let error = refused(run(desk.host().run(post(path))).outcome);
    assert_eq!(error.kind(), HostErrorKind::AuditUnavailable);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("by others"), "{error:?}");
    assert_eq!(count(path), 1);
}

#[test]
fn locked_keys_are_waited_for() {
    let desk = Desk::new();
    let host = desk.host();
    let keyed = |path: &str, key: &str| post(path).idempotency_key(key);
    run(host.run(keyed("/text/unwritable?warm", "warm"))).outcome.unwrap();

    // For a while: the call waits, and succeeds.
    let path = "/text/unwritable?while";
    let held = desk.lock();
    let running = {
        let (host, call) = (host.clone(), keyed(path, "while"));
        begin(async move { host.run(call).await.outcome })
    };
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(count(path), 0, "nothing runs before it is on record");
    // A call without a key waits for no other process.
    run(host.run(post("/text/unwritable?unkeyed"))).outcome.unwrap();
    drop(held);
    run(running).unwrap().unwrap();
    assert_eq!(count(path), 1);

    // Locked for too long at the end of a call: its outcome is on record, and the key is brought up to date later.
    let (path, key) = ("/slow/600/unwritable", "held");
    let running = {
        let (host, call) = (host.clone(), keyed(path, key));
        begin(async move { host.run(call).await })
    };
    while count(path) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let held = desk.lock();
    let CallResult { outcome, report } = run(running).unwrap();
    outcome.unwrap();
    drop(held);
    let row = host.audit().reader().unwrap().call(&report.audit_id).unwrap().unwrap();
    assert_eq!((row.status, row.attempts), (CallStatus::Value, Some(1)));
    drop(host);
    let again = || keyed(path, key).if_running(OnKeyConflict::Refuse);
    assert_eq!(run(desk.host().run(again())).outcome.unwrap()["status"], 200);
    assert_eq!(count(path), 1);

    // For too long, as it begins.
    let path = "/text/unwritable?locked";
    let held = desk.lock();
    let error = refused(run(desk.host().run(keyed(path, "locked"))).outcome);
    assert_eq!((error.kind(), count(path)), (HostErrorKind::AuditUnavailable, 0));
    assert!(error.message().contains("another process holds it"), "{error}");
    drop(held);
}

#[test]
fn a_full_or_read_only_disk_stops_calls() {
    let desk = Desk::new();
    let host_port = shared_host().upstream.host_port();
    fs::write(
        desk.home.path().join("config.toml"),
        format!("[network]\nallow_private = [\"{host_port}\"]\n"),
    )
    .unwrap();
    let url = shared_host().upstream.url("/text/unwritable?disk");
    let call =
        format!("\"$C\" call github://cofferdam/probe post --arg url={url} --arg body=b --format json");
    let script = format!(
        r#"{call} >/dev/null 2>&1; echo "first $?"
           dd if=/dev/zero of="$H/ballast" bs=1k 2>/dev/null
           {call}; echo "full $?"
           rm "$H/ballast"; mount -o remount,ro "$H"
           {call}; echo "read-only $?""#
    );
    let Some(output) = crate::disk::with_mount(desk.home.path(), "64m", &script) else { return };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = |words: &str| stdout.lines().any(|line| line.contains(words));
    assert!(said("first 0") && said("full 84") && said("read-only 84"), "{stdout}");
    assert!(said("audit_unavailable") && said("it may not be written"), "{stdout}");
    assert_eq!(count("/text/unwritable?disk"), 1);
}
