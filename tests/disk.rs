//! Disks that are full, cannot be written, or are left by a killed process: nothing is ever half-installed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use cofferdam_core::digest::Digest;
use cofferdam_test_support::services::Tools;
use cofferdam_test_support::{Cli, Home, Signer, Snapshot, package};
use serde_json::json;

use crate::COFFERDAM;
use crate::envelope;

const REFERENCE: &str = "github://acme/quiet@1.0.0";

/// A directory with a signed package in it, and a home that trusts its key.
fn release() -> (Home, std::path::PathBuf) {
    let home = Home::new(COFFERDAM);
    let signer = Signer::new();
    home.trust(&signer.public(), "github://acme/*");
    let bytes = package::pack(&package::quiet(), &package::manifest("github://acme/quiet", "1.0.0"));
    // Beside the home and not inside it: the home's content is what the tests compare.
    let file = home.path().with_extension("quiet.wasm");
    signer.write(&file, &bytes);
    (home, file)
}

/// The hash of the package, which `--accept` takes.
fn hash(file: &Path) -> String {
    format!("sha256:{}", Digest::sha256(&fs::read(file).unwrap()))
}

fn discard(file: &Path) {
    fs::remove_file(file).unwrap();
    fs::remove_file(file.with_extension("wasm.dsse.json")).unwrap();
}

#[test]
fn a_killed_install_is_complete_or_absent() {
    let (home, file) = release();
    let cli = Cli::new(COFFERDAM, home.path());
    let args = cli.install_args(&[file.as_os_str()]);
    let started = std::time::Instant::now();
    cli.run(&args).ok();
    let whole = started.elapsed();
    let mut both = (0, 0);
    for round in 0..24 {
        cli.run(&["remove", REFERENCE]).ok();
        // Half the rounds recompile: the cache is part of the written files.
        if round % 2 == 0 {
            fs::remove_dir_all(home.path().join("cache")).unwrap_or_default();
        }
        let mut child = cli.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(f64::from(round) / 22.0));
        child.kill().unwrap();
        child.wait().unwrap();
        let listed = cli.run(&["list", "--format", "json"]).json();
        match listed.as_array().unwrap().len() {
            0 => both.0 += 1,
            _ => {
                both.1 += 1;
                cli.run(&["verify", REFERENCE]).ok();
                assert_eq!(cli.run(&["call", REFERENCE, "run"]).json(), json!(null));
            }
        }
        cli.run(&args).ok();
        cli.run(&["verify"]).ok();
    }
    let leftovers = home.snapshot();
    let leftovers: Vec<_> = leftovers.paths().filter(|path| path.starts_with("packages/tmp/")).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    assert!(both.0 > 0, "no round was killed before it had installed: {both:?}");
    discard(&file);
}

#[test]
fn a_home_that_is_not_a_directory_is_named() {
    let (home, file) = release();
    let blocked = home.path().join("a-file");
    fs::write(&blocked, "").unwrap();
    let before = home.snapshot();
    for below in [blocked.clone(), blocked.join("home")] {
        let cli = Cli::new(COFFERDAM, &below).in_dir(Path::new("/"));
        let ran = cli.install(&[file.as_os_str(), "--allow-unsigned".as_ref()]);
        assert_ne!(ran.code, Some(0));
        assert!(!ran.stderr.is_empty());
    }
    assert_eq!(home.snapshot(), before);
    discard(&file);
}

/// Returns a command that runs the program in its arguments in a mount namespace of its own. If this user can mount no
/// file system here, reports that `what` is not tried and returns none; where services are required, as in CI, fails.
pub(crate) fn mount_namespace(what: &str) -> Option<Command> {
    let namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user"]);
        command
    };
    let possible = namespace().args(["mount", "-t", "tmpfs", "none", "/mnt"]).stderr(Stdio::null()).status();
    if possible.is_ok_and(|status| status.success()) {
        return Some(namespace());
    }
    assert!(!Tools::required(), "COFFERDAM_REQUIRE_SERVICES is set, and no file system can be mounted here");
    crate::skipped(&format!("no file system can be mounted here; {what} is not tried"));
    None
}

/// Runs `script` with a small file system mounted over the home, in a separate mount namespace; none if this
/// machine or user cannot have one. In the script `$C` is the binary, `$H` the home.
pub(crate) fn with_mount(home: &Path, size: &str, script: &str) -> Option<Output> {
    let mut command = mount_namespace("a full or read-only disk")?;
    let set_up = r#"cp -a "$H" /tmp/"$$"; mount -t tmpfs -o size="$SIZE" none "$H"; cp -a /tmp/"$$"/. "$H"; rm -r /tmp/"$$"; set +e; "#;
    command.args(["sh", "-ec"]).arg(format!("{set_up}{script}"));
    command.env("C", COFFERDAM).env("H", home).env("SIZE", size);
    Some(command.env("COFFERDAM_HOME", home).output().unwrap())
}

/// The last error in the output of a script.
fn last_error(output: &Output) -> serde_json::Value {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut errors = stdout.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let error = errors.rfind(|error| error.is_object());
    let error = error.unwrap_or_else(|| panic!("{stdout}{}", String::from_utf8_lossy(&output.stderr)));
    envelope::check_host_json(&error);
    error
}

#[test]
fn a_full_disk_is_an_error_that_changes_nothing() {
    let (home, file) = release();
    let script = format!(
        r#"mkdir -m 700 "$H/packages"; mount -t tmpfs -o size=8k,mode=700 none "$H/packages"
           list() {{ (cd "$H/packages" && find . -name .lock -o -name tmp -o -name sha256 -o -print | sort); }}
           list >&2; echo ---- >&2
           "$C" install {file} --accept {hash} --format json 2>&1 >/dev/null; echo "exit $?"
           list >&2; echo ---- >&2
           mount -o remount,size=64m "$H/packages"
           "$C" install {file} --accept {hash} >/dev/null 2>&1; echo "then $?"
           "$C" audit changes --format json"#,
        file = file.display(),
        hash = hash(&file)
    );
    let output = with_mount(home.path(), "64m", &script);
    discard(&file);
    let Some(output) = output else { return };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(last_error(&output)["error"]["code"], "registry_unavailable");
    assert!(stdout.contains("exit 74"), "{stdout}");
    assert!(stdout.contains("then 0"), "with room again it works: {stdout}{stderr}");
    let listings: Vec<_> = stderr.split("----").map(str::trim).collect();
    assert_eq!(listings[0], listings[1], "nothing is left of the attempt");
    let changes: Vec<serde_json::Value> = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    let failed: Vec<_> = changes.iter().map(|change| (&change["action"], &change["failed"])).collect();
    let (consent, install) = (&json!("consent"), &json!("install"));
    let (done, failure) = (&json!(null), &json!(true));
    // The newest first.
    let tried = [(install, failure), (consent, failure), (install, done), (consent, done)];
    assert_eq!(failed, [&tried[2..], &tried[..]].concat(), "{stdout}");
}

#[test]
fn a_disk_without_space_for_the_log_stops_installs() {
    let (home, file) = release();
    fs::write(home.path().join("ballast"), vec![7; 48 * 1024]).unwrap();
    let script = format!(
        r#""$C" install {file} --accept {hash} --format json 2>&1 >/dev/null; echo "exit $?"
           "$C" list --format json; ls "$H/packages/sha256" 2>/dev/null
           rm "$H/ballast"; mount -o remount,size=64m "$H"
           "$C" install {file} --accept {hash} >/dev/null 2>&1; echo "then $?""#,
        file = file.display(),
        hash = hash(&file)
    );
    let output = with_mount(home.path(), "64k", &script);
    discard(&file);
    let Some(output) = output else { return };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(last_error(&output)["error"]["code"], "audit_unavailable");
    assert!(stdout.ends_with("exit 84\n[]\nthen 0\n"), "{stdout}");
}

#[test]
fn a_read_only_home_runs_nothing_unrecorded() {
    let (home, file) = release();
    let cli = Cli::new(COFFERDAM, home.path());
    cli.install(&[file.as_os_str()]).ok();
    let before = home.snapshot();
    let script = format!(
        r#"mount -o remount,ro "$H"
           "$C" call {REFERENCE} run --format json; echo "call $?"
           "$C" install {file} --accept {hash} --quiet >/dev/null 2>&1; echo "again $?"
           "$C" remove {REFERENCE} --format json 2>&1; echo "remove $?"
           "$C" trust list >/dev/null; echo "list $?""#,
        file = file.display(),
        hash = hash(&file)
    );
    let output = with_mount(home.path(), "64m", &script);
    discard(&file);
    let Some(output) = output else { return };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.starts_with("{\"error\":{\"code\":\"audit_unavailable\","), "{all}");
    assert!(stdout.contains("\ncall 84"), "{all}");
    assert!(stdout.contains("remove 74"), "{all}");
    assert!(stdout.contains("list 0"), "{all}");
    assert_eq!(home.snapshot(), before);
}

#[test]
fn two_processes_that_install_at_once_both_succeed() {
    let (home, file) = release();
    let cli = Cli::new(COFFERDAM, home.path());
    let args = cli.install_args(&[file.as_os_str()]);
    for _ in 0..5 {
        let children: Vec<_> = (0..3)
            .map(|_| {
                cli.command(&args)
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .process_group(0)
                    .spawn()
                    .unwrap()
            })
            .collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        assert_eq!(cli.run(&["list", "--format", "json"]).json().as_array().unwrap().len(), 1);
        cli.run(&["verify"]).ok();
        cli.run(&["remove", REFERENCE]).ok();
    }
    assert!(!Snapshot::of(home.path()).paths().any(|path| path.starts_with("packages/tmp/")));
    discard(&file);
}
