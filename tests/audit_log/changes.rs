//! Changes by operators in the audit log: each with its user and the state before and after, and never a secret.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::{HostErrorKind, NewBinding, Secret, SecretMaterial, Vault, VaultFile};
use cofferdam_core::event::operator::{OperatorAction, OperatorEvent};
use cofferdam_egress::vault::{Bindings, VaultError};
use cofferdam_test_support::{Cli, Home, InstallAccepted as _, ManualClock, Signer, connector, package};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::bindings::{fed, slack};
use crate::shared_host::run;

const NAME: &str = "github://acme/slack";
const BINDING: &str = "basic/jira/work";
const SECRETS: [&str; 3] = ["canary-first-4f1e", "canary-next-77ab", "canary-user-token-9c"];

/// A home, the command line over it, and a signer with packages in these versions in the home.
fn setup(versions: &[&str]) -> (Home, Cli, Signer) {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    for version in versions {
        let bytes = slack(NAME, version, "slack.com:443");
        signer.write(home.path().join(format!("{version}.wasm")), &bytes);
    }
    let cli = Cli::new(COFFERDAM, home.path()).in_dir(home.path());
    (home, cli, signer)
}

/// The changes in the audit log, the oldest first.
fn changes(cli: &Cli) -> Vec<Value> {
    let listed = cli.run(&["audit", "changes", "--limit", "0", "--format", "json"]).json();
    let mut changes = listed.as_array().unwrap().clone();
    changes.reverse();
    changes
}

fn actions(changes: &[Value]) -> Vec<&str> {
    changes.iter().map(|change| change["action"].as_str().unwrap()).collect()
}

#[test]
fn changes_are_recorded_with_old_and_new_state() {
    let (home, cli, signer) = setup(&["1.0.0", "1.2.0"]);
    let key = signer.public().to_string();
    cli.run(&["trust", "add", &key, "--for", "github://acme/*", "--comment", "release key"]).ok();
    cli.run(&["trust", "add", &key, "--for", "github://other/*"]).ok();
    cli.install(&["1.0.0.wasm"]).ok();
    cli.install(&["1.2.0.wasm"]).ok();
    cli.run(&["trust", "floor", NAME, "1.1.0"]).ok();
    cli.run(&["trust", "floor", NAME, "1.2.0"]).ok();
    cli.run(&["trust", "floor", NAME, "--remove"]).ok();
    let set =
        ["binding", "set", BINDING, "--username", SECRETS[2], "--host", "a.example:443", "--connector", NAME];
    fed(&cli, &[&set[..], &["--stdin"]].concat(), SECRETS[0]).ok();
    fed(&cli, &["binding", "rebind", BINDING, "--stdin"], SECRETS[1]).ok();
    cli.run(&["binding", "allow", BINDING, "--host", "b.example:443", "--yes"]).ok();
    cli.run(&["binding", "disallow", BINDING, "--host", "a.example:443"]).ok();
    cli.run(&["binding", "revoke", BINDING, "--yes"]).ok();
    cli.run(&["remove", &format!("{NAME}@1.0.0")]).ok();
    cli.run(&["trust", "revoke", &key, "--reason", "laptop stolen"]).ok();
    cli.run(&["trust", "remove", &key]).ok();

    // `active_version` tests the changes of active versions, and `consent` the acceptances.
    let mut changes = changes(&cli);
    changes.retain(|change| change["action"] != "activate" && change["action"] != "consent");
    let expected = [
        "trust", "trust", "install", "install", "floor", "floor", "floor", "bind", "rebind", "allow",
        "disallow", "unbind", "remove", "revoke", "distrust",
    ];
    assert_eq!(actions(&changes), expected);
    let uid = fs::metadata(home.path()).unwrap().uid();
    for change in &changes {
        assert!(change["user"].as_str().unwrap().starts_with(&format!("uid {uid}")), "{change}");
        assert!(change["failed"].is_null() && change["at"].as_str().unwrap().ends_with('Z'), "{change}");
    }
    let of = |number: usize| (&changes[number]["before"], &changes[number]["after"]);
    let id = signer.public().id().to_string();
    assert_eq!((&changes[0]["subject"], of(0).0), (&json!(id), &Value::Null));
    assert_eq!(of(0).1["scopes"], json!(["github://acme/*"]));
    assert_eq!((&of(0).1["comment"], &of(0).1["public_key"]), (&json!("release key"), &json!(key)));
    assert_eq!(of(1), (of(0).1, of(13).0));
    assert_eq!(of(1).1["scopes"], json!(["github://acme/*", "github://other/*"]));

    let hash = |version: &str| {
        let bytes = slack(NAME, version, "slack.com:443");
        json!(format!("sha256:{}", cofferdam::Digest::sha256(&bytes)))
    };
    assert_eq!((of(2).0, &changes[2]["subject"]), (&Value::Null, &json!(format!("{NAME}@1.0.0"))));
    assert_eq!(of(2).1, &json!({"hash": hash("1.0.0"), "signer": id, "version": "1.0.0"}));
    let upgraded =
        (json!({"version": "1.0.0"}), json!({"hash": hash("1.2.0"), "signer": id, "version": "1.2.0"}));
    assert_eq!(of(3), (&upgraded.0, &upgraded.1));
    assert_eq!(of(12), (&json!({"hash": hash("1.0.0"), "version": "1.0.0"}), &Value::Null));

    let (low, high) = (json!({"version": "1.1.0"}), json!({"version": "1.2.0"}));
    assert_eq!([of(4), of(5), of(6)], [(&Value::Null, &low), (&low, &high), (&high, &Value::Null)]);

    assert_eq!((of(7).0, &of(7).1["hosts"]), (&Value::Null, &json!(["a.example:443"])));
    assert_eq!(of(7).1["connectors"], json!([NAME]));
    // Only the time says that the secret is another one, however soon it was replaced.
    assert_eq!(of(8), (of(7).1, of(9).0));
    assert_ne!(of(8).0["changed"], of(8).1["changed"]);
    assert!(of(8).0["changed"].as_str().unwrap().contains('.'), "{}", changes[8]);
    assert_eq!(of(8).0["hosts"], of(8).1["hosts"]);
    assert_eq!(of(9).1["hosts"], json!(["a.example:443", "b.example:443"]));
    assert_eq!(of(10), (of(9).1, of(11).0));
    assert_eq!((&of(11).0["hosts"], of(11).1), (&json!(["b.example:443"]), &Value::Null));

    assert_eq!((&of(13).0["status"], &of(13).1["status"]), (&json!("trusted"), &json!("revoked")));
    assert_eq!((&of(13).1["reason"], of(14)), (&json!("laptop stolen"), (of(13).1, &Value::Null)));

    let page = cli.run(&["audit", "changes", "--limit", "3"]).ok();
    assert!(page.contains("distrust") && page.contains("remove") && !page.contains("rebind"), "{page}");
    let page = cli.run(&["audit", "changes"]).ok();
    assert!(page.contains("version 1.1.0 -> 1.2.0") && page.contains("version 1.2.0 -> none"), "{page}");
    assert_eq!(cli.run(&["audit", "changes", "--since", "2999-01-01", "--format", "json"]).json(), json!([]));
    let text = format!("{page}{}", Value::from(changes));
    let log: Vec<u8> = home.segments().into_iter().flat_map(|segment| fs::read(segment).unwrap()).collect();
    for secret in SECRETS {
        assert!(!text.contains(secret), "{text}");
        assert!(!log.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
    }
    cli.run(&["audit", "verify"]).ok();
}

#[test]
fn refused_and_repeated_changes_are_not_recorded() {
    let (_home, cli, signer) = setup(&["1.0.0"]);
    let key = signer.public().to_string();
    // Its key is not trusted yet.
    assert_ne!(cli.install(&["1.0.0.wasm"]).code, Some(0));
    assert_ne!(cli.run(&["trust", "remove", &key]).code, Some(0));
    assert_ne!(cli.run(&["remove", NAME]).code, Some(0));
    assert_ne!(cli.run(&["binding", "revoke", BINDING, "--yes"]).code, Some(0));
    assert_eq!(changes(&cli), Vec::<Value>::new());
    for _ in 0..2 {
        cli.run(&["trust", "add", &key, "--for", "github://acme/*"]).ok();
        cli.install(&["1.0.0.wasm"]).ok();
        cli.run(&["trust", "floor", NAME, "1.0.0"]).ok();
    }
    assert_eq!(actions(&changes(&cli)), ["trust", "consent", "install", "floor"]);
}

#[test]
fn an_unwritable_log_stops_all_but_restrictions() {
    let (home, cli, signer) = setup(&["1.0.0", "1.2.0"]);
    let (key, other) = (signer.public().to_string(), Signer::new().public().to_string());
    cli.run(&["trust", "add", &key, "--for", "github://acme/*"]).ok();
    cli.install(&["1.0.0.wasm"]).ok();
    let set = [
        "binding",
        "set",
        BINDING,
        "--username",
        "ada",
        "--host",
        "a.example:443",
        "--connector",
        NAME,
        "--stdin",
    ];
    fed(&cli, &set, SECRETS[0]).ok();
    // A mistake with a backup: nothing can be written in the place of the log.
    let (log, backup) = (home.path().join("audit"), home.path().join("audit.backup"));
    fs::rename(&log, &backup).unwrap();
    fs::write(&log, "").unwrap();
    let before = home.snapshot();
    cli.run(&["trust", "add", &other, "--for", "github://other/*"]).fails(84).said("audit log");
    cli.install(&["1.2.0.wasm"]).fails(84).said("audit log");
    fed(&cli, &["binding", "rebind", BINDING, "--stdin"], SECRETS[1]).fails(84).said("audit log");
    cli.run(&["binding", "allow", BINDING, "--host", "b.example:443", "--yes"]).fails(84).said("audit log");
    let now = home.snapshot();
    let is_locked = |snapshot: cofferdam_test_support::Snapshot| {
        ["locks", "cache", ".keyring.lock", "packages/.lock"]
            .iter()
            .fold(snapshot, |it, name| it.without(name))
    };
    assert_eq!(is_locked(now), is_locked(before));
    for restriction in [
        vec!["trust", "floor", NAME, "1.0.0"],
        vec!["binding", "revoke", BINDING, "--yes"],
        vec!["remove", NAME],
        vec!["trust", "revoke", &key],
    ] {
        let ran = cli.run(&restriction);
        assert!(ran.stderr.contains("not in the audit log"), "{restriction:?}: {}", ran.stderr);
        ran.ok();
    }
    cli.run(&["trust", "floor", NAME, "--remove"]).fails(84).said("audit log");
    let listed = cli.run(&["trust", "list", "--format", "json"]).json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["status"]), (1, &json!("revoked")));
    assert_eq!(cli.run(&["list", "--format", "json"]).json(), json!([]));

    fs::remove_file(&log).unwrap();
    fs::rename(&backup, &log).unwrap();
    assert_eq!(actions(&changes(&cli)), ["trust", "consent", "install", "bind"]);
    cli.run(&["audit", "verify"]).ok();
    // A host that cannot be configured does not stop a revocation either.
    fs::write(home.path().join("config.toml"), "nonsense = 1").unwrap();
    let revoked = cli.run(&["trust", "revoke", &other]);
    assert!(revoked.stderr.contains("not in the audit log"), "{}", revoked.stderr);
    revoked.ok();
    assert_ne!(cli.run(&["trust", "remove", &other]).code, Some(0));
}

/// A vault whose writes fail after the change was made.
struct Unwritable(VaultFile);

impl Vault for Unwritable {
    fn bindings(&self) -> Result<Arc<Bindings>, VaultError> {
        self.0.bindings()
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut Bindings) -> Result<(), VaultError>,
    ) -> Result<(), VaultError> {
        let lost = || VaultError::Refused { message: "the connection was lost".into(), hint: String::new() };
        self.0.change(&mut |bindings| change(bindings).and_then(|()| Err(lost())))
    }
}

#[test]
fn an_embedder_s_changes_have_its_user_and_failures() {
    let home = Home::new(COFFERDAM);
    let events = |host: &cofferdam::Host| -> Vec<OperatorEvent<'static>> {
        let mut reader = host.audit().reader().unwrap();
        reader
            .operator_events(&Default::default())
            .unwrap()
            .into_iter()
            .rev()
            .map(|change| change.event)
            .collect()
    };
    let bind = |host: &cofferdam::Host| {
        host.bind(NewBinding {
            name: "bearer/slack/work".parse().unwrap(),
            material: SecretMaterial::Bearer { token: Secret::new(SECRETS[0].to_owned()).into() },
            hosts: vec!["slack.com:443".parse().unwrap()],
            connectors: vec![NAME.parse().unwrap()],
        })
    };
    let vault = Arc::new(Unwritable(VaultFile::new(home.path().join("vault"))));
    let host = home.builder().actor("svc:deploy").vault(vault).build().unwrap();
    bind(&host).unwrap_err();
    let failed = events(&host);
    assert_eq!(failed.iter().map(|event| event.failed).collect::<Vec<_>>(), [false, true]);
    assert!(failed.iter().all(|event| event.user == "svc:deploy" && event.action == OperatorAction::Bind));
    assert_eq!(failed[0].after, failed[1].after);

    let signer = Signer::new();
    let host = home.builder().actor("svc:deploy").user("ada of operations").build().unwrap();
    bind(&host).unwrap();
    assert_eq!(bind(&host).unwrap_err().kind(), HostErrorKind::Conflict);
    let trust = |keyring: &mut cofferdam_model::trust::Keyring| {
        let scope = cofferdam_model::trust::SigningScope::parse("github://acme/*").unwrap();
        keyring.trust(&signer.public(), &[scope], jiff::Timestamp::now(), None, None).unwrap();
        Ok(())
    };
    host.change_keyring(trust).unwrap();
    // From within a runtime, whose threads the log may need.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
        host.install_accepted(bytes.clone(), Some(signer.sign(&bytes)), Default::default()).await.unwrap();
        host.remove(&connector("github://acme/quiet@1.0.0")).unwrap();
    });
    let events = events(&host);
    let recorded: Vec<_> = events[2..].iter().map(|event| (event.action.name(), &*event.user)).collect();
    let ada = "ada of operations";
    assert_eq!(
        recorded,
        [("bind", ada), ("trust", ada), ("consent", ada), ("install", ada), ("remove", ada)]
    );
}

#[test]
fn an_accepted_clock_has_the_old_and_new_time() {
    let (home, clock) = (Home::new(COFFERDAM), ManualClock::new());
    let host = home.builder_at(&clock).user("ada of operations").build().unwrap();
    // The log goes by some time, which the clock then leaves behind.
    host.audit().accept_clock().unwrap();
    clock.skip(Duration::from_secs(50 * 60 * 60));
    let leapt = run(host.audit().time()).unwrap();
    assert!(!leapt.is_believed, "{leapt:?}");
    host.audit().accept_clock().unwrap();
    assert!(run(host.audit().time()).unwrap().is_believed);
    let mut reader = host.audit().reader().unwrap();
    let change = reader.operator_events(&Default::default()).unwrap().remove(0).event;
    assert_eq!((change.action, &*change.subject), (OperatorAction::Clock, "audit"));
    assert_eq!((&*change.user, change.failed), ("ada of operations", false));
    let [old, new] = [change.before, change.after].map(|state| state.unwrap().time.unwrap());
    assert_eq!(old, format!("{:.6}", leapt.time));
    let [old, new]: [Timestamp; 2] = [old, new].map(|time| time.parse().unwrap());
    assert!(new.duration_since(old) > SignedDuration::from_hours(49), "{old} {new}");
}
