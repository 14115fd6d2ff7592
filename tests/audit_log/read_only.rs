//! A log that cannot be written can still be read: on a full disk, and on a read-only one.

use std::fs;
use std::process::Output;

use cofferdam_test_support::{Cli, Home, Signer, package};

use crate::COFFERDAM;
use crate::shared_host::run;

/// A home with a connector that is called without a network.
fn home() -> Home {
    let (home, signer) = (Home::new(COFFERDAM), Signer::new());
    home.trust(&signer.public(), "github://acme/*");
    let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    run(home.install(&bytes, &signer)).unwrap();
    home
}

const CALL: &str = r#""$C" call github://acme/quiet run >/dev/null"#;

/// The commands that read the log, each followed by its exit code.
const LOOK: &str = r#"
    look() {
        ID=$("$C" audit list --format json | sed 's/.*"audit_id":"\(audit-[^"]*\)".*/\1/')
        for what in "audit list --failed" "audit show $ID" "audit stats" "audit tail" "audit verify" "audit export -" \
            "audit key" "recover list" "replay $ID"
        do
            "$C" $what >/dev/null 2>>"$T"; echo "$1: $what $?" | sed "s/ $ID//"
        done
        "$C" audit list --format json | grep -c '"op":"run"'
    }"#;

fn script(home: &Home, script: &str) -> Option<Output> {
    let trouble = home.path().with_extension("trouble");
    let script = format!("T={}; {LOOK}\n{script}\ncat \"$T\"; rm -f \"$T\"", trouble.display());
    crate::disk::with_mount(home.path(), "64m", &script)
}

#[test]
fn a_full_or_read_only_disk_does_not_stop_queries() {
    let home = home();
    let Some(output) = script(
        &home,
        &format!(
            r#"{CALL}
               dd if=/dev/zero of="$H/ballast" bs=1k 2>/dev/null
               look full
               rm "$H/ballast"; mount -o remount,ro "$H"
               look read-only"#
        ),
    ) else {
        return;
    };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    for disk in ["full", "read-only"] {
        let codes: Vec<_> = stdout.lines().filter(|line| line.starts_with(disk)).collect();
        assert_eq!(codes.len(), 9, "{stdout}");
        for code in codes {
            assert!(code.ends_with(" 0"), "{code}: {stdout}");
        }
    }
    assert_eq!(stdout.lines().filter(|line| *line == "1").count(), 2, "the call is listed: {stdout}");
}

#[test]
fn a_killed_hosts_calls_are_read_from_a_read_only_disk() {
    let home = home();
    let Some(output) = script(
        &home,
        &format!(
            r#"{CALL}
               COFFERDAM_FAILPOINTS=open.committed=kill {CALL} 2>&1; echo "killed $?"
               mount -o remount,ro "$H"; "$C" audit list --format json"#
        ),
    ) else {
        return;
    };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.contains("killed 137"), "{stdout}");
    let lists: Vec<serde_json::Value> =
        stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [list] = lists.as_slice() else { panic!("{stdout}") };
    assert_eq!((list.as_array().unwrap().len(), &list[0]["status"]), (2, &"incomplete".into()), "{list}");
}

#[test]
fn a_home_path_that_looks_like_a_uri_is_a_path() {
    let home = home();
    let odd = home.path().join("a b%20c?mode=memory#d");
    fs::create_dir(&odd).unwrap();
    let Some(output) = script(
        &home,
        &format!(
            r#"O="$H/a b%20c?mode=memory#d"; {CALL}
               cp -rp "$H/audit" "$H/host.key" "$O/"; chmod 700 "$O"
               mount -o remount,ro "$H"
               "$C" audit list --home "$O" --format json"#
        ),
    ) else {
        return;
    };
    let list: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stdout)));
    assert_eq!(list.as_array().unwrap().len(), 1);
    // In another mount namespace, the contents of the mount are invisible.
    assert_eq!(
        Cli::new(COFFERDAM, home.path())
            .run(&["audit", "list", "--format", "json"])
            .json()
            .as_array()
            .unwrap()
            .len(),
        0
    );
}
