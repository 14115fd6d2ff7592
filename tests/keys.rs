//! Keys that end, are succeeded, or must sign together: what runs, what does not, and what the audit log has of it.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use cofferdam::{Call, Digest};
use cofferdam_core::private_file::StagedFile;
use cofferdam_model::trust::{Keyring, SecretKey};
use cofferdam_test_support::{Cli, CommandResult, Home, Signer, connector, package};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::COFFERDAM;
use crate::bindings::terminal::{typed, typed_after};
use crate::envelope::{check, signature};
use crate::shared_host::{failed, run};

const NAME: &str = "github://acme/quiet";

pub(crate) fn quiet(version: &str) -> Vec<u8> {
    package::pack(&package::quiet(), &package::manifest(NAME, version))
}

/// A home, the command line over it, and a signer that is trusted for `github://acme/*` and signed the packages.
pub(crate) fn setup(versions: &[&str]) -> (Home, Cli, Signer) {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://acme/*");
    for version in versions {
        signer.write(home.path().join(format!("{version}.wasm")), &quiet(version));
    }
    let cli = Cli::new(COFFERDAM, home.path());
    (home, cli, signer)
}

/// Writes the key file of a new key, and returns the key's id and public key.
fn key_file(cli: &Cli, name: &str) -> (String, String) {
    let made = cli.run(&["key", "generate", "--out", name, "--format", "json"]).json();
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (text("key_id"), text("public_key"))
}

/// Checks that a call of a version fails with this code of `signature_failure`, in a new process and a warm host.
#[track_caller]
fn refused(home: &Home, version: &str, code: &'static str) -> String {
    let reference = connector(&format!("{NAME}@{version}"));
    let failure = failed(run(home.host().call(&reference, "run", json!({}))));
    check(&failure, signature(code));
    failure.message().to_owned()
}

fn call(cli: &Cli, version: &str) -> CommandResult {
    cli.run(&["call", &format!("{NAME}@{version}"), "run"])
}

fn changes(cli: &Cli) -> Vec<Value> {
    let listed = cli.run(&["audit", "changes", "--limit", "0", "--format", "json"]).json();
    let mut changes = listed.as_array().unwrap().clone();
    changes.reverse();
    changes
}

#[test]
fn a_revocation_keeps_only_what_was_installed_before() {
    let (home, cli, signer) = setup(&["1.0.0", "1.1.0"]);
    let id = signer.public().id().to_string();
    cli.install(&["1.0.0.wasm"]).ok();
    let warm = home.host();
    let reference = connector(&format!("{NAME}@1.0.0"));
    run(warm.call(&reference, "run", json!({}))).unwrap();
    cli.run(&["trust", "revoke", &id, "--reason", "laptop stolen in May"]).ok();
    check(&failed(run(warm.call(&reference, "run", json!({})))), signature("revoked_key"));
    let message = refused(&home, "1.0.0", "revoked_key");
    assert!(
        message.contains("laptop stolen in May") && message.contains("cofferdam trust keep"),
        "{message}"
    );
    // A date before the install: the thief may have made this package.
    cli.run(&["trust", "revoke", &id, "--since", "2026-01-01", "--keep-installed"]).ok();
    let message = refused(&home, "1.0.0", "revoked_key");
    assert!(message.contains("If it was installed here before 2026-01-01T00:00:00Z"), "{message}");
    cli.run(&["trust", "keep", &id]).fails(65).said("There is no package that the key could keep");
    cli.run(&["trust", "remove", &id]).ok();
    home.trust(&signer.public(), "github://acme/*");
    let revoked = cli.run(&["trust", "revoke", &id, "--keep-installed", "--format", "json"]);
    let hash = format!("sha256:{}", Digest::sha256(&quiet("1.0.0")));
    assert_eq!(revoked.json()["key"]["kept"], json!([hash]));
    call(&cli, "1.0.0").ok();
    run(warm.call(&reference, "run", json!({}))).unwrap();
    // Nothing else of the key, whatever date its signature claims.
    let refused = cli.install(&["1.1.0.wasm"]);
    assert!(refused.stderr.contains("revoked"), "{}", refused.stderr);
    assert!(cli.run(&["trust", "list"]).ok().contains("revoked"));
    let last = changes(&cli).pop().unwrap();
    assert_eq!((&last["action"], &last["after"]["kept"]), (&json!("revoke"), &json!([hash])));
    cli.run(&["trust", "revoke", &id, "--since", "2999-01-01"]).fails(2).said("--not-after");
}

#[test]
fn a_second_revocation_keeps_by_its_own_date() {
    let since = ["--since", "2026-01-01"];
    for again in [&[&since[..], &["--keep-installed"]].concat()[..], &since[..], &[]] {
        let (home, cli, signer) = setup(&["1.0.0"]);
        let id = signer.public().id().to_string();
        let hash = format!("sha256:{}", Digest::sha256(&quiet("1.0.0")));
        let revoke =
            |options: &[&str]| cli.run(&[&["trust", "revoke", &id, "--format", "json"], options].concat());
        cli.install(&["1.0.0.wasm"]).ok();
        assert_eq!(revoke(&["--keep-installed"]).json()["key"]["kept"], json!([hash]));
        call(&cli, "1.0.0").ok();
        let revoked = revoke(again).json();
        assert_eq!(revoked["key"]["kept"], json!([]), "{again:?}");
        assert_eq!(revoked["no_longer_kept"], json!([format!("{NAME}@1.0.0 ({hash})")]), "{again:?}");
        refused(&home, "1.0.0", "revoked_key");
        let last = changes(&cli).pop().unwrap();
        assert_eq!((&last["action"], &last["before"]["kept"]), (&json!("revoke"), &json!([hash])));
        if again.contains(&"--since") {
            // The earlier date counts, so that a later one does not bring the package back.
            assert_eq!(revoke(&["--keep-installed"]).json()["key"]["kept"], json!([]), "{again:?}");
        }
    }
}

#[test]
fn a_changed_log_is_no_evidence_of_an_install() {
    let (home, cli, signer) = setup(&["1.0.0"]);
    let id = signer.public().id().to_string();
    cli.install(&["1.0.0.wasm"]).ok();
    home.edit_segment(|lines| {
        let line = lines.iter_mut().find(|line| line.contains("\"install\"")).unwrap();
        *line = line.replace("1.0.0", "1.0.9");
    });
    let before = fs::read(home.path().join("keyring.toml")).unwrap();
    cli.run(&["trust", "revoke", &id, "--keep-installed"]).fails(86).said("does not show what was installed");
    assert_eq!(fs::read(home.path().join("keyring.toml")).unwrap(), before);
    cli.run(&["trust", "revoke", &id]).ok();
    assert_eq!(home.keyring().load().unwrap().entries()[0].kept(), []);
}

#[test]
fn an_expired_key_keeps_packages_by_the_operators_choice() {
    let (home, cli, signer) = setup(&["1.0.0", "1.1.0"]);
    let (id, public) = (signer.public().id().to_string(), signer.public().to_string());
    cli.install(&["1.0.0.wasm"]).ok();
    let last = Timestamp::now() + Duration::from_secs(2);
    let (end, why) = (last.to_string(), "the ceremony of 2026");
    let add = ["trust", "add", &public, "--for", "github://acme/*", "--not-after", &end, "--reason", why];
    cli.run(&add).ok();
    let warm = home.host();
    let reference = connector(&format!("{NAME}@1.0.0"));
    run(warm.call(&reference, "run", json!({}))).unwrap();
    std::thread::sleep(Duration::from_millis(2_200));
    check(&failed(run(warm.call(&reference, "run", json!({})))), signature("expired_key"));
    let message = refused(&home, "1.0.0", "expired_key");
    assert!(message.contains(why) && message.contains("cofferdam trust keep"), "{message}");
    cli.install(&["1.1.0.wasm"]).fails(81).said("last day has passed");
    cli.run(&["trust", "keep", &id]).fails(65).said("--yes");
    let kept = cli.run(&["trust", "keep", &id, "--yes", "--format", "json"]).json();
    assert_eq!(kept["key"]["kept"].as_array().unwrap().len(), 1, "{kept}");
    run(warm.call(&reference, "run", json!({}))).unwrap();
    assert_eq!(changes(&cli).pop().unwrap()["action"], "trust", "it is a permission, and recorded as one");
    cli.install(&["1.1.0.wasm"]).fails(81).said("last day has passed");
}

#[test]
fn a_rotation_is_shown_asked_and_recorded() {
    let (home, cli, _) = setup(&["1.0.0"]);
    let (old_id, old) = key_file(&cli, "old.key");
    let (new_id, _) = key_file(&cli, "new.key");
    cli.run(&["trust", "add", &old, "--for", NAME]).ok();
    cli.run(&["sign", "1.0.0.wasm", "--key", "old.key", "--replace"]).ok();
    cli.install(&["1.0.0.wasm"]).ok();
    cli.run(&["key", "rotate", "--key", "old.key", "--to", "old.key"]).fails(65).said("itself");
    cli.run(&["key", "rotate", "--key", "old.key", "--to", "new.key"]).ok();
    let rotate = ["trust", "rotate", "succession.dsse.json"];
    let before = fs::read(home.path().join("keyring.toml")).unwrap();
    cli.run(&rotate).fails(65).said("Add --yes");
    assert_eq!(fs::read(home.path().join("keyring.toml")).unwrap(), before);
    if let Some((done, screen)) = typed(&cli, &rotate, &[("[y/N]", "n")]) {
        assert!(done && screen.contains(&new_id) && screen.contains(NAME), "{screen}");
        assert!(screen.contains("Nothing was changed"), "{screen}");
    }
    let rotated = cli.run(&[&rotate[..], &["--keep-installed", "--yes", "--format", "json"]].concat()).json();
    assert_eq!((&rotated["new"]["id"], &rotated["old"]["status"]), (&json!(new_id), &json!("revoked")));
    assert_eq!(rotated["new"]["scopes"], json!([NAME]));
    assert_eq!(rotated["new"]["successor_of"], json!(old_id));
    call(&cli, "1.0.0").ok();
    let of = changes(&cli);
    let [.., revoke, rotate_change] = of.as_slice() else { panic!("{of:?}") };
    assert_eq!((&revoke["action"], &revoke["subject"]), (&json!("revoke"), &json!(old_id)));
    assert_eq!((&rotate_change["action"], &rotate_change["subject"]), (&json!("rotate"), &json!(new_id)));
    assert_eq!(rotate_change["after"]["successor_of"], json!(old_id));

    let bytes = quiet("1.1.0");
    fs::write(home.path().join("1.1.0.wasm"), &bytes).unwrap();
    cli.run(&["sign", "1.1.0.wasm", "--key", "new.key"]).ok();
    let difference = cli.run(&["diff", &format!("{NAME}@1.0.0"), "1.1.0.wasm", "--format", "json"]).json();
    let signer =
        &difference["changes"].as_array().unwrap().iter().find(|it| it["subject"] == "signer").unwrap();
    assert_eq!((&signer["severity"], &signer["part"]), (&json!("note"), &json!("identity")), "{signer}");
    // A successor is the same signer, so that nothing has to be accepted.
    cli.run(&["install", "1.1.0.wasm"]).ok();
    // The statement again, another successor of the same key, and a circle.
    cli.run(&[&rotate[..], &["--yes"]].concat()).fails(65).said("already");
    key_file(&cli, "other.key");
    let again = |key: &str, to: &str, says: &str| {
        let statement = format!("{key}-{to}.json");
        cli.run(&["key", "rotate", "--key", key, "--to", to, "--output", &statement]).ok();
        cli.run(&["trust", "rotate", &statement, "--yes"]).fails(65).said(says);
    };
    again("old.key", "other.key", "by another key already");
    again("new.key", "old.key", "circle");
    again("other.key", "new.key", "not in the keyring");
    let stale = "2026-01-01T00:00:00Z";
    cli.run(&["key", "rotate", "--key", "new.key", "--to", "other.key", "--valid-until", stale])
        .fails(65)
        .said("ahead");
}

#[test]
fn a_rotation_of_a_key_that_changed_is_a_conflict() {
    let (home, cli, _) = setup(&[]);
    let (_, old) = key_file(&cli, "old.key");
    let (new_id, _) = key_file(&cli, "new.key");
    cli.run(&["trust", "add", &old, "--for", NAME]).ok();
    cli.run(&["key", "rotate", "--key", "old.key", "--to", "new.key"]).ok();
    let rotate = ["trust", "rotate", "succession.dsse.json"];
    let meanwhile = || drop(cli.run(&["trust", "add", &old, "--for", "github://other/*"]).ok());
    let Some((done, screen)) = typed_after(&cli, &rotate, &[("[y/N]", "y")], meanwhile) else { return };
    assert!(!done && screen.contains("changed meanwhile"), "{screen}");
    assert!(home.keyring().load().unwrap().find(&new_id).is_err());
}

#[test]
fn a_rotated_key_may_end_later() {
    let (home, cli, _) = setup(&["1.0.0"]);
    let (_, old) = key_file(&cli, "old.key");
    key_file(&cli, "new.key");
    cli.run(&["trust", "add", &old, "--for", NAME]).ok();
    cli.run(&["sign", "1.0.0.wasm", "--key", "old.key", "--replace"]).ok();
    cli.install(&["1.0.0.wasm"]).ok();
    cli.run(&["key", "rotate", "--key", "old.key", "--to", "new.key"]).ok();
    let rotate = ["trust", "rotate", "succession.dsse.json", "--yes"];
    cli.run(&[&rotate[..], &["--old-until", "2026-01-01"]].concat()).fails(65).said("The date has passed");
    cli.run(&[&rotate[..], &["--old-until", "2999-01-01", "--not-after", "2999-06-01"]].concat()).ok();
    call(&cli, "1.0.0").ok();
    let keyring = home.keyring().load().unwrap();
    let [_, old, new] = keyring.entries() else { panic!("{}", keyring.to_text()) };
    assert!(keyring.is_successor(old.id(), new.id()));
    assert_eq!(new.not_after().unwrap().to_string(), "2999-06-01T23:59:59Z");
}

#[test]
fn a_threshold_holds_at_install_and_every_call() {
    let (home, cli, signer) = setup(&["1.0.0"]);
    let id = signer.public().id().to_string();
    let (second_id, second) = key_file(&cli, "second.key");
    cli.install(&["1.0.0.wasm"]).ok();
    let warm = home.host();
    let reference = connector(&format!("{NAME}@1.0.0"));
    run(warm.call(&reference, "run", json!({}))).unwrap();
    let set = cli.run(&["trust", "threshold", NAME, "2"]);
    assert!(set.stderr.contains("only 1 may"), "a threshold above the number of keys warns: {}", set.stderr);
    set.ok();
    check(&failed(run(warm.call(&reference, "run", json!({})))), signature("too_few_signatures"));
    let message = refused(&home, "1.0.0", "too_few_signatures");
    assert!(message.contains("2 different trusted keys") && message.contains("trust threshold"), "{message}");
    let unsigned = Call::new(reference.clone(), "run", json!({})).allow_unsigned();
    check(&failed(run(warm.run(unsigned)).outcome), signature("too_few_signatures"));
    let verified = cli.run(&["verify", "--format", "json"]);
    assert!(verified.stdout.contains("too_few_signatures"), "{verified:?}");
    let reference_text = format!("{NAME}@1.0.0");
    let why = cli.run(&["why", &reference_text, "wasi:cli/exit"]).ok();
    assert!(why.contains("No call runs until this is solved"), "{why}");
    let inspected = cli.run(&["inspect", &reference_text, "--format", "json"]).json();
    assert_eq!(inspected["signature"]["status"], "too_few_signatures");
    assert_eq!(inspected["signature"]["threshold"], 2);

    // The second signature in the same file, by a key that is not trusted yet, and then is.
    cli.run(&["sign", "1.0.0.wasm", "--key", "second.key"]).ok();
    cli.install(&["1.0.0.wasm"]).fails(81).said("2 different trusted keys");
    cli.run(&["trust", "add", &second, "--for", NAME]).ok();
    let installed = cli.install(&["1.0.0.wasm", "--format", "json"]).json();
    assert_eq!(installed["signers"], json!([id, second_id]));
    let recorded = changes(&cli).pop().unwrap();
    assert_eq!(recorded["after"]["signers"], json!([id, second_id]), "{recorded}");
    run(warm.call(&reference, "run", json!({}))).unwrap();
    let verified = cli.run(&["verify", "--format", "json"]).json();
    assert_eq!(verified["connectors"][0]["signers"], json!([id, second_id]));
    assert!(cli.run(&["inspect", &reference_text]).ok().contains("by 2 keys (2 needed)"));
    assert!(cli.run(&["trust", "threshold"]).ok().contains(NAME));

    let revoked = cli.run(&["trust", "revoke", &second_id]);
    assert!(revoked.stderr.contains("only 1 may"), "{}", revoked.stderr);
    check(&failed(run(warm.call(&reference, "run", json!({})))), signature("too_few_signatures"));
    cli.run(&["trust", "threshold", NAME, "1"])
        .fails(2)
        .said("2 to 16; without a threshold one signature suffices (--remove)");
    cli.run(&["trust", "threshold", NAME, "many"]).fails(2).said("a number");
    cli.run(&["trust", "threshold", NAME]).fails(65).said("NUMBER");
    cli.run(&["trust", "threshold", NAME, "--remove"]).ok();
    run(warm.call(&reference, "run", json!({}))).unwrap();
    let of: Vec<_> = changes(&cli).into_iter().filter(|change| change["action"] == "threshold").collect();
    assert_eq!((&of[0]["after"], &of[1]["before"]), (&json!({"signatures": 2}), &json!({"signatures": 2})));
}

#[test]
fn statements_about_keys_overwrite_no_file() {
    let (home, cli, _) = setup(&[]);
    key_file(&cli, "old.key");
    key_file(&cli, "new.key");
    let files = || ["old.key", "new.key"].map(|name| fs::read(home.path().join(name)).unwrap());
    let before = files();
    for output in ["old.key", "./new.key"] {
        cli.run(&["key", "rotate", "--key", "old.key", "--to", "new.key", "--output", output])
            .fails(67)
            .said("exists already");
        let export = ["key", "export", "old.key", "--publisher", "github://firm/*", "--output", output];
        cli.run(&export).fails(67).said("--output");
    }
    assert_eq!(files(), before);
}

#[test]
fn an_import_needs_the_fingerprint() {
    let (home, cli, _) = setup(&[]);
    let (first_id, _) = key_file(&cli, "first.key");
    let (second_id, second) = key_file(&cli, "second.key");
    let export = ["key", "export", "first.key", "--publisher", "github://firm/*", "--format", "json"];
    let exported = cli.run(&export).json();
    let fingerprint = exported["fingerprint"].as_str().unwrap();
    assert_eq!(
        fingerprint,
        format!("sha256:{}", Digest::sha256(&fs::read(home.path().join("keys.json")).unwrap()))
    );
    let before = fs::read(home.path().join("keyring.toml")).unwrap();
    cli.run(&["trust", "import", "keys.json"]).fails(65).said("--fingerprint");
    let other = format!("sha256:{}", "0".repeat(64));
    cli.run(&["trust", "import", "keys.json", "--fingerprint", &other]).fails(65).said("another document");
    if let Some((done, screen)) = typed(&cli, &["trust", "import", "keys.json"], &[("[y/N]", "n")]) {
        assert!(done && screen.contains(fingerprint) && screen.contains("github://firm/*"), "{screen}");
        // A fingerprint that is not on the screen is not confirmed.
        let hidden = typed(&cli, &["trust", "import", "keys.json", "2>log"], &[]);
        assert!(hidden.is_some_and(|(done, _)| !done));
        let log = fs::read_to_string(home.path().join("log")).unwrap();
        assert!(log.contains("standard error is no terminal") && log.contains("--fingerprint"), "{log}");
    }
    assert_eq!(fs::read(home.path().join("keyring.toml")).unwrap(), before);
    let import = |arguments: &[&str]| {
        let set = Digest::sha256(&fs::read(home.path().join("keys.json")).unwrap());
        let fingerprint = format!("sha256:{set}");
        let line = ["trust", "import", "keys.json", "--format", "json", "--fingerprint", &fingerprint];
        cli.run(&[&line[..], arguments].concat())
    };
    let narrow = import(&["--for", "github://firm/tool"]).json();
    assert_eq!((&narrow["imported"], &narrow["signers"]), (&json!(true), &json!([first_id])));
    assert_eq!(narrow["keys"][0]["gains"], json!(["github://firm/tool"]));
    let same = import(&["--for", "github://firm/tool"]).json();
    assert_eq!((&same["imported"], &same["keys"][0]["change"]), (&json!(false), &json!("unchanged")));
    let of: Vec<_> = changes(&cli).into_iter().filter(|change| change["action"] == "import").collect();
    assert_eq!(of.len(), 1);
    assert_eq!(
        (&of[0]["subject"], &of[0]["after"]["hash"]),
        (&json!("github://firm/*"), &json!(fingerprint))
    );

    // A later set with another key: what changes is shown. Then the earlier one again, which is older.
    let early = fs::read(home.path().join("keys.json")).unwrap();
    fs::remove_file(home.path().join("keys.json")).unwrap();
    std::thread::sleep(Duration::from_millis(1_100));
    let export = ["key", "export", &second, "--publisher", "github://firm/*", "--for", "github://firm/tool"];
    cli.run(&export).ok();
    let later = import(&[]).json();
    let effects: Vec<_> =
        later["keys"].as_array().unwrap().iter().map(|key| (&key["id"], &key["change"])).collect();
    assert_eq!(effects, [(&json!(second_id), &json!("added")), (&json!(first_id), &json!("missing"))]);
    assert_eq!((&later["previous"]["fingerprint"], &later["signers"]), (&json!(fingerprint), &json!([])));
    fs::write(home.path().join("keys.json"), early).unwrap();
    import(&[]).fails(65).said("is older");
    cli.run(&["trust", "import", "nowhere.json"]).fails(66).said("nowhere.json");
    cli.run(&["trust", "import", "first.key"]).fails(65).said("not a key set");
    cli.run(&["key", "export", &second, &second, "--publisher", "github://firm/*"]).fails(65).said("twice");
}

#[test]
fn a_killed_keyring_change_is_complete_or_absent() {
    let (home, cli, _) = setup(&[]);
    let path = home.path().join("keyring.toml");
    for n in 0..200 {
        let key = SecretKey::generate().unwrap().public();
        home.trust(&key, &format!("github://owner{n}/*"));
    }
    let (with, without) = (["trust", "threshold", NAME, "2"], ["trust", "threshold", NAME, "--remove"]);
    let started = std::time::Instant::now();
    cli.run(&with).ok();
    let whole = started.elapsed();
    let states = [fs::read_to_string(&path).unwrap(), {
        cli.run(&without).ok();
        fs::read_to_string(&path).unwrap()
    }];
    let mut seen = [0, 0];
    for round in 0..24 {
        let line = if round % 2 == 0 { &with[..] } else { &without[..] };
        let mut child = cli.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(round) / 20.0));
        child.kill().unwrap();
        child.wait().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        Keyring::parse("keyring.toml", &text).unwrap();
        let at = states.iter().position(|state| *state == text);
        seen[at.unwrap_or_else(|| panic!("round {round}: {text}"))] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    cli.run(&without).ok();
    // A killed change may leave its new content, which the next one removes.
    let names = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let is_left = |name: &String| name.contains("keyring") || name.starts_with(StagedFile::PREFIX);
    let mut left: Vec<_> = names.filter(is_left).collect();
    left.sort();
    assert_eq!(left, [".keyring.lock", "keyring.toml"]);
}
