//! Queries of the audit log: by short ids, before there is a log, into existing files.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use cofferdam_test_support::{Cli, CommandResult, Home, Signer, package};
use serde_json::Value;

use crate::COFFERDAM;
use crate::shared_host::run;

const QUIET: &str = "github://acme/quiet@1.0.0";

/// A home with a connector that is called without a network.
fn quiet() -> (Home, Cli) {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://acme/*");
    let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    run(home.install(&bytes, &signer)).unwrap();
    let cli = Cli::new(COFFERDAM, home.path());
    (home, cli)
}

fn ask(cli: &Cli, line: &str) -> CommandResult {
    cli.run(&line.split(' ').collect::<Vec<_>>())
}

fn ids(cli: &Cli) -> Vec<String> {
    let list = ask(cli, "audit list --format json").json();
    list.as_array().unwrap().iter().map(|row| row["audit_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn queries_before_the_first_call_create_nothing() {
    let (home, cli) = quiet();
    let before = home.snapshot();
    for line in ["audit list", "audit tail", "audit verify"] {
        let ran = ask(&cli, line);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{line}");
        ran.said("Nothing was called yet.");
    }
    let proof = ask(&cli, "audit verify --format json").json();
    assert_eq!((&proof["holds"], &proof["entries"]), (&Value::from(true), &Value::from(0)));
    // A missing target is an error, and always the same one.
    let id = "audit-01890000-0000-7000-8000-000000000001";
    for line in [
        "audit export calls.jsonl",
        "audit export -",
        &format!("audit show {id}"),
        &format!("replay {id}"),
        "replay 01890000-0000",
        &format!("recover skip {id} --reason seen"),
        &format!("recover resume {id}"),
        "audit list --before 01890000-0000",
    ] {
        let ran = ask(&cli, line);
        assert_eq!(ran.code, Some(66), "{line}: {ran:?}");
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains("call"), "{line}: {ran:?}");
    }
    assert_eq!(home.snapshot(), before);
}

#[test]
fn an_export_without_entries_is_empty() {
    let (_home, cli) = quiet();
    ask(&cli, "audit checkpoint").ok();
    for (line, why) in [
        ("audit export -", "Nothing was recorded yet."),
        ("audit export - --until 2020-01-01", "Nothing was recorded in that time."),
    ] {
        let ran = ask(&cli, line).fails(66);
        assert_eq!(ran.stdout, "", "{line}");
        ran.said(why);
    }
}

#[test]
fn short_ids_are_accepted_everywhere() {
    let (_home, cli) = quiet();
    for _ in 0..3 {
        ask(&cli, &format!("call {QUIET} run")).ok();
        // Ids begin with the millisecond.
        std::thread::sleep(Duration::from_millis(3));
    }
    let ids = ids(&cli);
    let short = &ids[1]["audit-".len()..ids[1].len() - 18];
    assert_eq!(ask(&cli, &format!("replay {short}")).ok(), "null\n");
    let page = ask(&cli, &format!("audit list --before {short} --format json")).json();
    assert_eq!(page[0]["audit_id"], Value::from(ids[2].clone()));
    ask(&cli, &format!("recover skip {short} --reason seen")).fails(67).said(&ids[1]);
    // An ambiguous prefix matches no call.
    let both = &ids[1][..12];
    ask(&cli, &format!("replay {both}")).fails(65).said("Several calls begin with");
    ask(&cli, "replay audit-xyz").fails(66).said("is not the id of a call");
}

#[test]
fn a_refused_call_names_its_audit_entry() {
    let (home, cli) = quiet();
    let refused = ask(&cli, &format!("call {QUIET} runn")).fails(66);
    let id = ids(&cli).remove(0);
    assert!(refused.stderr.contains(&format!("record: {id}")), "{}", refused.stderr);
    refused.said(&format!("cofferdam audit show {id}"));
    // A reference without an installed version is not a call yet.
    let unknown = ask(&cli, "call github://acme/none run").fails(66);
    assert!(!unknown.stderr.contains("audit-"), "{}", unknown.stderr);
    assert_eq!(ids(&cli).len(), 1);
    // With a version it is one.
    let unknown = ask(&cli, "call github://acme/none@1.0.0 run").fails(66);
    unknown.said(&ids(&cli)[0]);
    // A call that could not be recorded has no entry to name.
    let segment = home.segments().remove(0);
    let mut mode = fs::metadata(&segment).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o666);
    fs::set_permissions(&segment, mode).unwrap();
    let unrecorded = ask(&cli, &format!("call {QUIET} run")).fails(84);
    let named = ["record: audit-", "audit show"].iter().any(|words| unrecorded.stderr.contains(words));
    assert!(!named, "{}", unrecorded.stderr);
}

#[test]
fn any_operation_name_is_logged_verifiably() {
    let (home, cli) = quiet();
    let host = home.host();
    let names = ["", " ", "\u{1}", "\u{200b}\u{85}", "a b", "\u{10ffff}", "\0a", "run\n"];
    for name in names {
        let quiet = cofferdam_test_support::connector(QUIET);
        for call in [
            cofferdam::Call::new(quiet.clone(), name, serde_json::json!({})),
            cofferdam::Call::new(quiet, "run", serde_json::json!({})).step_of(name, name).actor(name),
            cofferdam::Call::new(
                cofferdam_test_support::connector("github://acme/none@1.0.0"),
                name,
                serde_json::json!({}),
            ),
        ] {
            let _ = run(host.run(call)).outcome;
        }
    }
    run(host.flush());
    drop(host);
    assert_eq!(ids(&cli).len(), 3 * names.len());
    ask(&cli, "audit verify").ok();
    // And a changed name is found.
    home.edit_segment(|lines| {
        let line = lines.iter_mut().find(|line| line.contains("\"op\":\"\"")).unwrap();
        *line = line.replace("\"op\":\"\"", "\"op\":\"other\"");
    });
    let found = ask(&cli, "audit verify").fails(86);
    assert!(found.stdout.contains("was changed"), "{}", found.stdout);
}

#[test]
fn an_export_overwrites_only_with_permission() {
    let (home, cli) = quiet();
    ask(&cli, &format!("call {QUIET} run")).ok();
    let path = home.path().join("calls.jsonl");
    ask(&cli, "audit export calls.jsonl").ok();
    let whole = fs::read(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    for line in ["audit export calls.jsonl", "audit export -o calls.jsonl"] {
        ask(&cli, line).fails(67).said("--force");
        assert_eq!(fs::read(&path).unwrap(), b"mine", "{line}");
    }
    ask(&cli, "audit export --output calls.jsonl --force").ok();
    assert_eq!(fs::read(&path).unwrap().len(), whole.len());
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777,
        0o600
    );
    // A target that is not a file is not replaced, and a log that does not verify replaces nothing.
    std::os::unix::fs::symlink(&path, home.path().join("link")).unwrap();
    ask(&cli, "audit export link --force").fails(74).said("is not a file");
    fs::write(&path, "mine").unwrap();
    home.edit_segment(|lines| {
        lines.iter_mut().for_each(|line| *line = line.replace("quiet", "quilt"));
    });
    let _ = ask(&cli, "audit export calls.jsonl --force").fails(86);
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    let left = home.snapshot();
    assert!(!left.paths().any(|path| path.contains(".cofferdam-")), "nothing half-written is left");
    let _ = ask(&cli, "audit export calls.jsonl -o other.jsonl").fails(2);
}

#[test]
fn a_long_verification_reports_progress() {
    let (_home, cli) = quiet();
    for _ in 0..3 {
        ask(&cli, &format!("call {QUIET} run")).ok();
    }
    let export = ask(&cli, "audit export -").ok();
    let verify = |more: &[&str]| {
        let args = [&["audit", "verify", "--export", "-"], more].concat();
        let mut command = cli.command(&args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let (first, rest) = export.split_at(export.len() / 2);
        stdin.write_all(first.as_bytes()).unwrap();
        // Longer than a user would wait without feedback.
        std::thread::sleep(Duration::from_millis(2_500));
        stdin.write_all(rest.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let told = verify(&[]);
    assert!(told.contains(" entries verified ..."), "{told:?}");
    assert_eq!(verify(&["--quiet"]), "");
}
