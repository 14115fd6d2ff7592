//! The active version of a connector: installs, switches, removals and their entries in the audit log.

use cofferdam_test_support::package::{manifest, pack, quiet};
use cofferdam_test_support::{Cli, Home, Signer, connector};
use serde_json::{Value, json};

use crate::COFFERDAM;

const NAME: &str = "github://acme/quiet";

struct Versions {
    home: Home,
    signer: Signer,
}

impl Versions {
    fn new() -> Self {
        let (home, signer) = (Home::new(COFFERDAM), Signer::new());
        home.trust(&signer.public(), "github://acme/*");
        Self { home, signer }
    }

    fn cli(&self) -> Cli {
        Cli::new(COFFERDAM, self.home.path())
    }

    /// Installs a version from a file, as a user does, and returns the result.
    fn install(&self, version: &str) -> Value {
        let file = self.home.path().join(format!("quiet-{version}.wasm"));
        self.signer.write(&file, &pack(&quiet(), &manifest(NAME, version)));
        self.cli().install(&[file.to_str().unwrap(), "--format", "json"]).json()
    }

    /// Returns the installed versions, with true for the active one.
    fn listed(&self) -> Vec<(String, bool)> {
        let list = self.cli().run(&["list", "--format", "json"]).json();
        let line =
            |line: &Value| (line["version"].as_str().unwrap().to_owned(), line["active"].as_bool().unwrap());
        list.as_array().unwrap().iter().map(line).collect()
    }

    /// Returns the recorded switches, the oldest first: the versions before and after.
    fn switches(&self) -> Vec<[String; 2]> {
        let changes = self.cli().run(&["audit", "changes", "--limit", "0", "--format", "json"]).json();
        let text = |state: &Value| state["version"].as_str().unwrap().to_owned();
        let all = changes.as_array().unwrap().iter().rev();
        let switches = all.filter(|change| change["action"] == "activate");
        switches.map(|change| ["before", "after"].map(|state| text(&change[state]))).collect()
    }

    /// Calls the connector by its name, and returns the version that ran.
    fn called(&self) -> String {
        self.cli().run(&["call", NAME, "run"]).ok();
        let newest = self.cli().run(&["audit", "list", "--limit", "1", "--format", "json"]).json();
        let connector = newest[0]["connector"].as_str().unwrap().to_owned();
        connector.rsplit('@').next().unwrap().to_owned()
    }
}

fn versions(of: &[(&str, bool)]) -> Vec<(String, bool)> {
    of.iter().map(|(version, active)| ((*version).to_owned(), *active)).collect()
}

#[test]
fn an_install_activates_and_a_rollback_returns() {
    let it = Versions::new();
    assert_eq!(it.install("0.1.0")["replaces"], Value::Null);
    assert_eq!(it.install("0.2.0")["replaces"], "0.1.0");
    assert_eq!(it.called(), "0.2.0");
    assert_eq!(it.listed(), versions(&[("0.1.0", false), ("0.2.0", true)]));
    let rolled = it.cli().run(&["rollback", NAME, "--format", "json"]).json();
    assert_eq!(rolled, json!({"name": NAME, "version": "0.1.0", "replaces": "0.2.0"}));
    assert_eq!(it.called(), "0.1.0");
    let list = it.cli().run(&["list", "--format", "json"]).json();
    let times: Vec<_> = list.as_array().unwrap().iter().map(|line| &line["last_call"]).collect();
    assert!(times.iter().all(|time| time.as_str().is_some_and(|time| time.ends_with('Z'))), "{list}");
    // Installing it again does not undo the rollback.
    let again = it.install("0.2.0");
    assert_eq!((&again["already_installed"], &again["active"]), (&json!(true), &json!(false)));
    assert_eq!(it.called(), "0.1.0");
    it.cli().run(&["use", "github://acme/quiet@0.2.0"]).ok();
    assert_eq!(it.called(), "0.2.0");
    let used = it.cli().run(&["use", "github://acme/quiet@0.2.0", "--format", "json"]).json();
    assert_eq!(used["replaces"], Value::Null, "it was active");
    // A reference with a version is not affected.
    it.cli().run(&["call", "github://acme/quiet@0.1.0", "run"]).ok();
}

#[test]
fn last_calls_without_a_readable_log_are_unknown() {
    let it = Versions::new();
    it.install("0.1.0");
    let away = "postgres://cofferdam@127.0.0.1:1/away";
    let list = it.cli().command(&["list"]).env("COFFERDAM_AUDIT_URL", away).output().unwrap();
    let [table, said] = [list.stdout, list.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(list.status.success(), "{said}");
    assert!(table.contains("unknown") && !table.contains("never"), "{table}");
    assert!(said.contains("127.0.0.1:1/away cannot be reached"), "{said}");
}

#[test]
fn a_removal_activates_the_version_before() {
    let it = Versions::new();
    for version in ["0.1.0", "0.2.0", "0.3.0"] {
        it.install(version);
    }
    it.cli().run(&["use", "github://acme/quiet@0.1.0"]).ok();
    let removed = it.cli().run(&["remove", NAME, "--format", "json"]).json();
    assert_eq!(removed["removed"], "github://acme/quiet@0.1.0");
    assert_eq!(removed["active"], "github://acme/quiet@0.3.0", "{removed}");
    assert_eq!(it.listed(), versions(&[("0.2.0", false), ("0.3.0", true)]));
    it.cli().run(&["rollback", NAME]).fails(67).said("cofferdam use NAME@VERSION");
    let removed = it.cli().run(&["remove", "github://acme/quiet@0.2.0", "--format", "json"]).json();
    assert_eq!(removed.get("active"), None, "the active one is the same: {removed}");
    it.cli().run(&["rollback", NAME]).fails(67).said("was active before");
}

#[test]
fn each_change_of_the_active_version_is_recorded() {
    let it = Versions::new();
    it.install("0.1.0");
    it.install("0.2.0");
    it.cli().run(&["rollback", NAME]).ok();
    it.cli().run(&["rollback", NAME]).ok();
    it.cli().run(&["remove", NAME]).ok();
    let expected = [["0.1.0", "0.2.0"], ["0.2.0", "0.1.0"], ["0.1.0", "0.2.0"], ["0.2.0", "0.1.0"]]
        .map(|it| it.map(str::to_owned));
    assert_eq!(it.switches(), expected);
}

#[test]
fn concurrent_switches_are_recorded_in_their_order() {
    let it = Versions::new();
    for version in ["0.1.0", "0.2.0", "0.3.0"] {
        it.install(version);
    }
    let host = it.home.host();
    std::thread::scope(|scope| {
        for version in ["0.1.0", "0.2.0", "0.3.0"] {
            let (host, reference) = (host.clone(), connector(&format!("{NAME}@{version}")));
            scope.spawn(move || {
                for _ in 0..20 {
                    host.activate(&reference).unwrap();
                    // Another thread may have switched to the version before.
                    let _ = host.rollback(reference.name());
                }
            });
        }
    });
    drop(host);
    let switches = it.switches();
    assert!(switches.len() > 60, "{switches:?}");
    for pair in switches.windows(2) {
        assert_eq!(pair[0][1], pair[1][0], "each switch begins with the version of the one before");
    }
    let active = it.listed().into_iter().find(|(_, active)| *active).unwrap();
    assert_eq!(switches.last().unwrap()[1], active.0);
}

#[test]
fn a_lost_index_has_the_highest_version_active() {
    let it = Versions::new();
    it.install("0.9.0");
    it.install("0.10.0");
    it.cli().run(&["rollback", NAME]).ok();
    std::fs::remove_file(it.home.path().join("packages/index.json")).unwrap();
    it.cli().run(&["verify", "--rebuild-index"]).ok();
    assert_eq!(it.listed(), versions(&[("0.9.0", false), ("0.10.0", true)]));
}
