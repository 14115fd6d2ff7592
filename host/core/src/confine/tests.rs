//! Attacks on the confinement, each by a thread that confined itself first.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::{ProcessRole, ProtectionLevel, ServerFiles, ThreadCoverage, attempts, confine};

/// Runs `attack` on a thread that is confined as `role`.
fn confined<T: Send + 'static>(role: ProcessRole, attack: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        let walls = confine(&role, ThreadCoverage::Thread);
        assert_ne!(walls.files, ProtectionLevel::Missing, "this kernel has no Landlock");
        assert_eq!(walls.system_calls, ProtectionLevel::Holds);
        attack()
    });
    thread.join().unwrap()
}

fn server(home: &Path) -> ProcessRole {
    let compiler = Path::new("/bin/true").canonicalize().unwrap();
    ProcessRole::Server(ServerFiles { home: home.to_owned(), compiler, ..ServerFiles::default() })
}

fn refused<T: std::fmt::Debug>(outcome: &std::io::Result<T>) -> bool {
    matches!(outcome, Err(error) if error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn a_server_writes_only_in_its_home() {
    let home = tempfile::tempdir().unwrap();
    let (walls, tried) = attempts(server(home.path())).unwrap();
    assert_ne!(walls.files, ProtectionLevel::Missing);
    assert!(tried.iter().all(|attempt| attempt.refused), "{tried:?}");
}

#[test]
fn the_attempts_succeed_without_confinement() {
    let outside = tempfile::NamedTempFile::new().unwrap();
    assert!(File::open(outside.path()).is_ok());
    assert!(Command::new("/bin/sh").args(["-c", ":"]).status().is_ok());
}

#[test]
fn a_server_keeps_its_home_and_configured_files() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = elsewhere.path().join("vault.key");
    fs::write(&key, "key").unwrap();
    fs::write(elsewhere.path().join("other"), "other").unwrap();
    let mut role = server(home.path());
    let ProcessRole::Server(files) = &mut role else { unreachable!() };
    files.configured.push(key.clone());
    let at = home.path().to_owned();
    confined(role, move || {
        fs::create_dir(at.join("actions")).unwrap();
        fs::write(at.join("actions/new"), "text").unwrap();
        fs::rename(at.join("actions/new"), at.join("moved")).unwrap();
        assert_eq!(fs::read_to_string(at.join("moved")).unwrap(), "text");
        assert_eq!(fs::read_to_string(&key).unwrap(), "key");
        assert!(refused(&fs::write(&key, "changed")));
        assert!(refused(&fs::read(key.with_file_name("other"))));
        assert!(Command::new("/bin/true").status().unwrap().success());
    });
}

#[test]
fn files_in_the_home_cannot_be_executed() {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("program");
    // Another process copies it: a program that this one has open for writing while another test starts a process cannot
    // be executed (`ETXTBSY`).
    assert!(Command::new("cp").arg("/bin/true").arg(&program).status().unwrap().success());
    assert!(Command::new(&program).status().is_ok());
    confined(server(home.path()), move || assert!(refused(&Command::new(&program).status())));
}

#[test]
fn a_link_in_the_home_cannot_escape() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let link = home.path().join("link");
    std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
    assert!(fs::read(&link).is_ok());
    confined(server(home.path()), move || assert!(refused(&fs::read(&link))));
}

#[test]
fn tracing_and_namespaces_are_refused() {
    use nix::sched::{CloneFlags, unshare};
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    for role in [server(home.path()), ProcessRole::CompileWorker] {
        confined(role, move || {
            assert_eq!(nix::sys::ptrace::attach(pid), Err(nix::Error::EPERM));
            for namespace in [CloneFlags::CLONE_NEWUSER, CloneFlags::CLONE_NEWNET, CloneFlags::CLONE_NEWPID] {
                assert_eq!(unshare(namespace), Err(nix::Error::EPERM), "{namespace:?}");
            }
        });
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_worker_can_open_no_file_socket_or_process() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "text").unwrap();
    confined(ProcessRole::CompileWorker, move || {
        assert!(refused(&File::open(&file)));
        assert!(refused(&File::create(file.with_file_name("new"))));
        assert!(refused(&std::net::TcpListener::bind("127.0.0.1:0")));
        assert!(refused(&std::os::unix::net::UnixDatagram::unbound()));
        assert!(refused(&Command::new("/bin/true").status()));
        // The compile worker needs threads.
        assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
    });
}
