//! The script in docs/guides/verify-the-log.md has the same verdicts as `cofferdam audit verify`, on sound logs and on
//! tampered ones.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cofferdam_core::digest::Digest;
use cofferdam_test_support::{Cli, Home, ManualClock, connector, package};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::COFFERDAM;
use crate::audit_verify::{REFERENCE, recorded};
use crate::shared_host::run;

/// A change of the lines of a file.
type LineEdit = fn(&mut Vec<&[u8]>);

/// The script, a Python that can run it, and the public key.
struct Script {
    python: PathBuf,
    file: PathBuf,
    key: String,
    dir: TempDir,
}

impl Script {
    /// Extracts the script from the page; none if no Python can run it.
    fn new(key: String) -> Option<Self> {
        let python = std::env::var_os("COFFERDAM_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
        let found = Command::new(&python).args(["-c", "import cryptography"]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            let is_required = std::env::var_os("COFFERDAM_REQUIRE_SERVICES").is_some();
            assert!(
                !is_required,
                "COFFERDAM_REQUIRE_SERVICES is set, and there is no Python with cryptography"
            );
            crate::skipped("there is no Python with cryptography; the script for auditors is not checked");
            return None;
        }
        let page = package::repository().join("docs/guides/verify-the-log.md");
        let page = fs::read_to_string(page).unwrap();
        let (_, script) = page.split_once("```python\n").unwrap();
        let (script, _) = script.split_once("```\n").unwrap();
        assert!(script.lines().count() <= 60);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("verify.py");
        fs::write(&file, script).unwrap();
        Some(Self { python, file, key, dir })
    }

    /// Returns true if the log holds according to the script.
    fn holds(&self, path: &Path) -> bool {
        let output = Command::new(&self.python).arg(&self.file).arg(&self.key).arg(path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)) && !text.contains("Traceback"), "{text}");
        output.status.success()
    }

    /// Copies the home, changes the copy's audit directory, and compares the verdicts.
    fn compare(&self, home: &Path, what: &str, is_sound: bool, change: impl FnOnce(&Path)) {
        self.check(home, what, [is_sound; 2], |copy| change(&copy.join("audit")));
    }

    /// Copies the home, changes the copy, and checks whether it is sound to the script and to `audit verify`.
    fn check(&self, home: &Path, what: &str, are_sound: [bool; 2], change: impl FnOnce(&Path)) {
        let copy = self.dir.path().join("home");
        copy_all(home, &copy);
        change(&copy);
        let script = self.holds(&copy);
        let ran = Cli::new(COFFERDAM, &copy).run(&["audit", "verify"]);
        assert!(matches!(ran.code, Some(0 | 86)), "{what}: {}", ran.stderr);
        assert_eq!([script, ran.code == Some(0)], are_sound, "{what}: {}", ran.stdout);
    }

    /// Compares the verdicts about an export.
    fn compare_export(&self, what: &str, is_sound: bool, export: &[u8]) {
        let file = self.dir.path().join("calls.jsonl");
        fs::write(&file, export).unwrap();
        let args = ["audit", "verify", "--export", file.to_str().unwrap(), "--key", &self.key];
        let ran = Cli::new(COFFERDAM, self.dir.path()).run(&args);
        assert_eq!((self.holds(&file), ran.code == Some(0)), (is_sound, is_sound), "{what}: {}", ran.stdout);
    }
}

/// A home with journals of several writers, one of them of several segments, signed to their ends.
fn home_with_journals() -> (Home, Cli) {
    let (home, cli) = recorded();
    let clock = ManualClock::new();
    let host = home.builder_at(&clock).build().unwrap();
    for _ in 0..3 {
        run(host.call(&connector(REFERENCE), "run", json!({}))).unwrap();
        cli.run(&["call", REFERENCE, "run"]).ok();
        clock.skip(Duration::from_secs(25 * 60 * 60));
    }
    drop(host);
    cli.run(&["audit", "checkpoint"]).ok();
    (home, cli)
}

/// Replaces a file or a directory by a copy of another one.
fn copy_all(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn flip(file: &Path, random: &mut fastrand::Rng) {
    let mut bytes = fs::read(file).unwrap();
    let at = random.usize(..bytes.len());
    bytes[at] ^= 1 << random.u8(..8);
    fs::write(file, bytes).unwrap();
}

/// Changes the lines of a text, each with its line break.
fn edited(text: &[u8], edit: impl FnOnce(&mut Vec<&[u8]>)) -> Vec<u8> {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').collect();
    edit(&mut lines);
    lines.concat()
}

/// Appends bytes to a file.
fn append(file: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(file).unwrap().write_all(bytes).unwrap();
}

/// Appends an entry to a segment, as anyone can who may write the file: with the next number, and the hash of the last
/// line.
fn append_entry(file: &Path, mut entry: Value) {
    let text = fs::read_to_string(file).unwrap();
    let last = text.lines().next_back().unwrap();
    let n = serde_json::from_str::<Value>(last).unwrap()["n"].as_u64().unwrap();
    entry["n"] = (n + 1).into();
    entry["prev"] = Digest::sha256(last.as_bytes()).to_string().into();
    append(file, format!("{entry}\n").as_bytes());
}

/// Returns the entry as one of a call that is not in the log.
fn of_another_call(mut entry: Value) -> Value {
    let mut id = entry["audit_id"].as_str().unwrap().to_owned();
    let last = if id.pop() == Some('0') { '1' } else { '0' };
    id.push(last);
    entry["audit_id"] = id.into();
    entry
}

/// A home that is signed to its end, the path of its only segment in it, and its script.
fn signed_home() -> Option<(Home, PathBuf, Script)> {
    let (home, cli) = recorded();
    cli.run(&["audit", "checkpoint"]).ok();
    let script = Script::new(cli.run(&["audit", "key"]).ok().trim().to_owned())?;
    let segments = home.segments();
    let [segment] = &*segments else { panic!("{segments:?}") };
    let segment = segment.strip_prefix(home.path()).unwrap().to_owned();
    Some((home, segment, script))
}

#[test]
fn both_verifiers_agree_on_directories() {
    let (home, cli) = home_with_journals();
    let Some(script) = Script::new(cli.run(&["audit", "key"]).ok().trim().to_owned()) else { return };
    let all = home.segments();
    let names: Vec<_> = all.iter().map(|it| it.strip_prefix(home.path().join("audit")).unwrap()).collect();
    assert!(names.iter().any(|it| it.parent() != names[0].parent()), "several writers: {names:?}");
    let compare = |what: &str, is_sound, change: &mut dyn FnMut(&Path)| {
        script.compare(home.path(), what, is_sound, |audit| change(audit));
    };
    compare("unchanged", true, &mut |_| ());
    let mut random = fastrand::Rng::with_seed(11);
    for name in &names {
        for _ in 0..4 {
            compare("a byte", false, &mut |audit| flip(&audit.join(name), &mut random));
        }
        let edits: [(&str, LineEdit); 5] = [
            ("a line removed", |lines| {
                lines.remove(lines.len() / 2);
            }),
            ("a line doubled", |lines| lines.insert(1, lines[0])),
            ("lines swapped", |lines| lines.swap(0, 1)),
            ("the end removed", |lines| {
                lines.pop();
            }),
            ("the beginning removed", |lines| {
                lines.remove(0);
            }),
        ];
        for (what, edit) in edits {
            let change = &mut |audit: &Path| {
                let file = audit.join(name);
                fs::write(&file, edited(&fs::read(&file).unwrap(), edit)).unwrap();
            };
            compare(what, false, change);
        }
        let renamed = |audit: &Path| audit.join(name).with_file_name("000000000777.jsonl");
        compare("renamed", false, &mut |audit| fs::rename(audit.join(name), renamed(audit)).unwrap());
        compare("removed", false, &mut |audit| fs::remove_file(audit.join(name)).unwrap());
        compare("the writer removed", false, &mut |audit| {
            fs::remove_dir_all(audit.join(name).parent().unwrap()).unwrap();
        });
        if let Some(other) = names.iter().find(|it| it.parent() != name.parent()) {
            let change = &mut |audit: &Path| {
                fs::copy(audit.join(other), audit.join(name)).unwrap();
            };
            compare("another writer's segment", false, change);
        }
    }
    let pair = names.windows(2).find(|pair| pair[0].parent() == pair[1].parent()).unwrap();
    for number in [0, 2] {
        let added = |audit: &Path| audit.join(pair[0]).with_file_name(format!("{number:012}.jsonl"));
        let copied = |audit: &Path| fs::copy(audit.join(pair[0]), added(audit)).unwrap();
        compare("a segment added", false, &mut |audit| assert!(copied(audit) > 0));
        compare("an empty segment added", false, &mut |audit| {
            copied(audit);
            fs::write(added(audit), "").unwrap();
        });
    }
    let writer = names[0].parent().unwrap().to_str().unwrap();
    compare("a name without hyphens", true, &mut |audit| {
        copy_all(&audit.join(writer), &audit.join(writer.replace('-', "")));
    });
    for _ in 0..8 {
        compare("a byte signed", false, &mut |audit| flip(&audit.join("checkpoint"), &mut random));
    }
    compare("no checkpoint", false, &mut |audit| fs::remove_file(audit.join("checkpoint")).unwrap());
    let (other, _cli) = recorded();
    let foreign = other.path().join("audit/checkpoint");
    compare("another home's checkpoint", false, &mut |audit| {
        fs::copy(&foreign, audit.join("checkpoint")).unwrap();
    });
    // A process that is killed leaves a part of a line.
    let change = &mut |audit: &Path| {
        let file = audit.join(names.last().unwrap());
        fs::write(&file, [fs::read(&file).unwrap(), b"{\"audit_id\":".to_vec()].concat()).unwrap();
    };
    compare("a part of a line", true, change);
}

/// The script proves the journals alone. Where `audit verify` checks more, the page says so.
#[test]
fn verdicts_beside_the_journals_are_as_documented() {
    let (home, cli) = recorded();
    let Some(script) = Script::new(cli.run(&["audit", "key"]).ok().trim().to_owned()) else { return };
    cli.run(&["audit", "checkpoint"]).ok();
    let before = script.dir.path().join("before");
    copy_all(home.path(), &before);
    cli.run(&["call", REFERENCE, "run", "--idempotency-key", "order-18"]).ok();
    cli.run(&["audit", "checkpoint"]).ok();
    let mut random = fastrand::Rng::with_seed(13);
    let check = |what: &str, are_sound, change: &mut dyn FnMut(&Path)| {
        script.check(home.path(), what, are_sound, |copy| change(copy));
    };
    let (both, only_the_script) = ([true; 2], [true, false]);
    let sealed: Vec<_> = home.segments().iter().map(|it| it.with_extension("sealed")).collect();
    let sealed: Vec<_> = sealed.iter().filter(|it| fs::metadata(it).is_ok_and(|it| it.len() > 0)).collect();
    assert!(!sealed.is_empty());
    for file in sealed {
        let name = file.strip_prefix(home.path()).unwrap();
        for _ in 0..2 {
            check("a sealed byte", only_the_script, &mut |copy| flip(&copy.join(name), &mut random));
        }
        check("sealed parts cut off", only_the_script, &mut |copy| {
            let bytes = fs::read(copy.join(name)).unwrap();
            fs::write(copy.join(name), &bytes[..bytes.len() - 1]).unwrap();
        });
        check("no sealed parts", both, &mut |copy| fs::remove_file(copy.join(name)).unwrap());
    }
    check("no keys", both, &mut |copy| fs::remove_file(copy.join("audit/keys.db")).unwrap());
    check("changed keys", both, &mut |copy| fs::write(copy.join("audit/keys.db"), "keys").unwrap());
    check("older keys", both, &mut |copy| {
        copy_all(&before.join("audit/keys.db"), &copy.join("audit/keys.db"));
    });
    check("no state", only_the_script, &mut |copy| fs::remove_file(copy.join("home.state")).unwrap());
    check("a changed state", only_the_script, &mut |copy| flip(&copy.join("home.state"), &mut random));
    check("an older state", both, &mut |copy| copy_all(&before.join("home.state"), &copy.join("home.state")));
    check("an older checkpoint", only_the_script, &mut |copy| {
        copy_all(&before.join("audit/checkpoint"), &copy.join("audit/checkpoint"));
    });
    check("an older log", only_the_script, &mut |copy| copy_all(&before.join("audit"), &copy.join("audit")));
}

#[test]
fn the_script_is_stricter_where_documented() {
    let Some((home, segment, script)) = signed_home() else { return };
    let (neither, both, only_the_host) = ([false; 2], [true; 2], [false, true]);
    let check = |what: &str, are_sound, change: &dyn Fn(&Path)| {
        script.check(home.path(), what, are_sound, |copy| change(copy));
    };
    let accept = |copy: &Path| {
        Cli::new(COFFERDAM, copy).run(&["audit", "verify", "--accept-loss"]).ok();
    };
    let edit = |copy: &Path| {
        let text = fs::read_to_string(copy.join(&segment)).unwrap();
        let changed = text.replacen("\"op\":\"run\"", "\"op\":\"ran\"", 1);
        assert_ne!(changed, text);
        fs::write(copy.join(&segment), changed).unwrap();
    };
    check("an edit", neither, &edit);
    check("an edit that is accepted", only_the_host, &|copy| {
        edit(copy);
        accept(copy);
    });
    let cut = |copy: &Path| {
        let text = fs::read(copy.join(&segment)).unwrap();
        let cut = edited(&text, |lines| {
            lines.pop();
        });
        fs::write(copy.join(&segment), cut).unwrap();
    };
    check("an end that is cut off", neither, &cut);
    // The log is signed as it is then.
    check("an end that is accepted as lost", both, &|copy| {
        cut(copy);
        accept(copy);
    });
    let hole = [&b"{\"audit_id\":\""[..], &[0; 300], b"\"}\n"].concat();
    for (what, tail, are_sound) in
        [("zeros in a line", &hole[..], only_the_host), ("zeros at the end", &[0; 300][..], both)]
    {
        check(what, are_sound, &|copy| append(&copy.join(&segment), tail));
        check("a host after a power cut", both, &|copy| {
            append(&copy.join(&segment), tail);
            Cli::new(COFFERDAM, copy).run(&["call", REFERENCE, "run"]).ok();
        });
    }
    let unused = Home::new(COFFERDAM);
    script.check(unused.path(), "no call", only_the_host, |_| ());
}

#[test]
fn the_script_misses_what_is_documented() {
    let Some((home, segment, script)) = signed_home() else { return };
    let (both, only_the_script) = ([true; 2], [true, false]);
    let check = |what: &str, are_sound, change: &dyn Fn(&Path)| {
        script.check(home.path(), what, are_sound, |copy| change(copy));
    };
    let text = fs::read_to_string(home.path().join(&segment)).unwrap();
    let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The first entry of a call with a key, or of one without.
    let opening = |has_key: bool| {
        let is_opening = |entry: &&Value| {
            let claims = |events: &Vec<Value>| events.iter().any(|it| it["payload"]["claim"].is_object());
            let is_first = entry["events"][0]["type"] == "received";
            is_first && entry["events"].as_array().is_some_and(claims) == has_key
        };
        entries.iter().find(is_opening).unwrap().clone()
    };
    let ended = opening(false);
    let added = of_another_call(ended.clone());
    let changed = |event: &str, value: Value| {
        let mut entry = added.clone();
        *entry.pointer_mut(&format!("/events/0/{event}")).unwrap() = value;
        entry
    };
    for (what, are_sound, entry) in [
        ("an event after the end of its call", only_the_script, &ended),
        ("another number of an event", only_the_script, &changed("seq", 3.into())),
        ("another form of an event", only_the_script, &changed("seq", "1".into())),
        // Nothing follows the last entry, and nothing signs it.
        ("an entry after the signed one", both, &added),
        ("another last entry", both, &changed("payload/op", "ran".into())),
        ("two calls under one key", both, &of_another_call(opening(true))),
    ] {
        check(what, are_sound, &|copy| append_entry(&copy.join(&segment), entry.clone()));
    }
    let lock = |copy: &Path| copy.join("audit/keys.lock");
    check("a directory in the place of a file", only_the_script, &|copy| {
        fs::remove_file(lock(copy)).unwrap();
        fs::create_dir(lock(copy)).unwrap();
    });
    check("a link in the place of a file", only_the_script, &|copy| {
        fs::rename(lock(copy), copy.join("audit/moved")).unwrap();
        symlink("moved", lock(copy)).unwrap();
    });
}

/// A mistyped path must not look like tampering.
#[test]
fn misuse_of_the_script_is_no_verdict() {
    let Some(script) = Script::new(String::new()) else { return };
    for args in [&[][..], &["name+id+key", "missing.jsonl"], &["", "."]] {
        let output = Command::new(&script.python).arg(&script.file).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*text), (Some(2), "usage: verify.py KEY PATH\n"), "{args:?}");
    }
}

#[test]
fn both_verifiers_agree_on_exports() {
    let (home, cli) = home_with_journals();
    let Some(script) = Script::new(cli.run(&["audit", "key"]).ok().trim().to_owned()) else { return };
    cli.run(&["audit", "export", "calls.jsonl"]).ok();
    let export = fs::read(home.path().join("calls.jsonl")).unwrap();
    script.compare_export("unchanged", true, &export);
    let mut random = fastrand::Rng::with_seed(12);
    for _ in 0..20 {
        let mut changed = export.clone();
        changed[random.usize(..export.len())] ^= 1 << random.u8(..8);
        script.compare_export("a byte", false, &changed);
    }
    let count = export.iter().filter(|byte| **byte == b'\n').count();
    for at in [0, 1, 2, count / 2, count - 2, count - 1] {
        script.compare_export(
            "removed",
            false,
            &edited(&export, |lines| {
                lines.remove(at);
            }),
        );
        script.compare_export("doubled", false, &edited(&export, |lines| lines.insert(at, lines[at])));
        script.compare_export("swapped", false, &edited(&export, |lines| lines.swap(at, (at + 1) % count)));
        script.compare_export("cut", false, &edited(&export, |lines| lines.truncate(at)));
    }
    script.compare_export("no last line break", false, &export[..export.len() - 1]);
    let (_home, other) = recorded();
    let foreign = Script { key: other.run(&["audit", "key"]).ok().trim().to_owned(), ..script };
    foreign.compare_export("another key", false, &export);
}
