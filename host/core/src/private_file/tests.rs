//! Attacks on private files: every rule of a policy has a file that breaks it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

const TRUSTED: FilePolicy = FilePolicy::trusted(100);
const SECRET: FilePolicy = FilePolicy::secret(100);

/// Another user, in tests that run as root.
const OTHER: u32 = 12_345;

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: only root can give a file to another user");
    }
    is_root
}

fn file(dir: &Path, mode: u32) -> PathBuf {
    let path = dir.join("a.toml");
    fs::write(&path, "content").unwrap();
    set_mode(&path, mode);
    path
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[track_caller]
fn fault(path: &Path, policy: &FilePolicy) -> FileFault {
    match read(path, policy) {
        Err(FileError::Refused(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn errors_do_not_name_the_temporary_file() {
    // No file can be created in this directory, not even by root.
    let begun = StagedFile::begin(Path::new("/proc/self/a.toml"), &FilePolicy::private_output());
    let error = io::Error::from(begun.unwrap_err());
    assert!(!error.to_string().contains(StagedFile::PREFIX), "{error}");
}

#[test]
fn a_file_is_read_only_if_its_mode_keeps_others_out() {
    let home = tempfile::tempdir().unwrap();
    for open in [0o600, 0o400, 0o644] {
        assert_eq!(read(&file(home.path(), open), &TRUSTED).unwrap().unwrap(), b"content", "{open:o}");
    }
    for open in [0o620, 0o602, 0o666] {
        let path = file(home.path(), open);
        assert_eq!(fault(&path, &TRUSTED), FileFault::WritableByOthers { mode: open });
        assert_eq!(fault(&path, &SECRET), FileFault::WritableByOthers { mode: open });
    }
    for open in [0o640, 0o604, 0o610] {
        assert_eq!(fault(&file(home.path(), open), &SECRET), FileFault::ReadableByOthers { mode: open });
    }
    assert!(read(&home.path().join("none"), &SECRET).unwrap().is_none());
    assert!(read(&home.path().join("no/such/file"), &SECRET).unwrap().is_none());
}

#[test]
fn links_pipes_and_directories_are_not_read() {
    let home = tempfile::tempdir().unwrap();
    let path = file(home.path(), 0o600);
    let link = home.path().join("link");
    symlink(&path, &link).unwrap();
    assert_eq!(fault(&link, &TRUSTED), FileFault::SymbolicLink);
    assert_eq!(read(&link, &TRUSTED.named()).unwrap().unwrap(), b"content");
    fs::hard_link(&path, home.path().join("second")).unwrap();
    assert_eq!(fault(&path, &TRUSTED), FileFault::HardLink);
    assert_eq!(fault(&path, &TRUSTED.named()), FileFault::HardLink);
    assert_eq!(fault(home.path(), &TRUSTED), FileFault::NotRegular);
    let pipe = home.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    assert_eq!(fault(&pipe, &TRUSTED), FileFault::NotRegular);
    assert_eq!(fault(&pipe, &TRUSTED.named()), FileFault::NotRegular);
}

#[test]
fn a_file_larger_than_its_policy_allows_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = file(home.path(), 0o600);
    assert_eq!(fault(&path, &FilePolicy::secret(6)), FileFault::TooLarge { limit: 6 });
    let opened = open(&path, &FilePolicy::secret(7)).unwrap().unwrap();
    // The file grows between the check and the read.
    fs::write(&path, "contents").unwrap();
    assert!(matches!(opened.read(), Err(FileError::Refused(FileFault::TooLarge { limit: 7 }))));
}

#[test]
fn a_file_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = file(home.path(), 0o600);
    chown(&path, Some(OTHER), None).unwrap();
    assert_eq!(fault(&path, &TRUSTED), FileFault::ForeignOwner);
    assert_eq!(fault(&path, &TRUSTED.named()), FileFault::ForeignOwner);
    assert!(FileLock::try_acquire(&path).is_err());
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("one/two");
    fs::create_dir_all(&dir).unwrap();
    let path = file(&dir, 0o600);
    let is_refused = |policy: &FilePolicy| matches!(read(&path, policy), Err(FileError::Refused(_)));
    for open in [0o777, 0o757] {
        for part in [dir.as_path(), dir.parent().unwrap()] {
            set_mode(part, open);
            let expected = FileFault::Directory { path: part.canonicalize().unwrap() };
            assert_eq!(fault(&path, &TRUSTED), expected);
            assert_eq!(fault(&path, &TRUSTED.named()), expected);
            assert!(replace(&path, b"new", &TRUSTED).is_err());
            assert!(FileLock::try_acquire(&path).is_err());
            // A missing file is no evidence either: another user may have removed it.
            assert_eq!(fault(&dir.join("none"), &TRUSTED), expected);
            // Other users may create files there, but rename only their own.
            set_mode(part, open | 0o1000);
            assert!(!is_refused(&TRUSTED), "{open:o}");
            set_mode(part, 0o755);
        }
    }
    // The group with the user's number is accepted as the user's own above the directory of the file.
    chown(dir.parent().unwrap(), None, Some(rustix::process::geteuid().as_raw())).ok();
    if fs::metadata(dir.parent().unwrap()).unwrap().gid() == rustix::process::geteuid().as_raw() {
        set_mode(dir.parent().unwrap(), 0o775);
        assert!(!is_refused(&TRUSTED));
    }
    set_mode(&dir, 0o775);
    assert!(is_refused(&TRUSTED));
}

#[test]
fn a_link_or_directory_of_another_user_is_refused() {
    if !is_root() {
        return;
    }
    // As on `/tmp`, every user may create names there.
    let shared = tempfile::tempdir().unwrap();
    set_mode(shared.path(), 0o1777);
    let own = shared.path().join("own");
    fs::create_dir(&own).unwrap();
    file(&own, 0o600);
    let link = shared.path().join("link");
    symlink("own", &link).unwrap();
    assert!(read(&link.join("a.toml"), &TRUSTED).unwrap().is_some());
    rustix::fs::chownat(
        rustix::fs::CWD,
        &link,
        Some(rustix::fs::Uid::from_raw(OTHER)),
        None,
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    let path = shared.path().canonicalize().unwrap().join("link");
    assert_eq!(fault(&link.join("a.toml"), &TRUSTED), FileFault::Directory { path });
    chown(&own, Some(OTHER), None).unwrap();
    let path = own.canonicalize().unwrap();
    assert_eq!(fault(&own.join("a.toml"), &TRUSTED.named()), FileFault::Directory { path });
}

#[test]
fn parent_links_are_followed_with_a_bound() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("one");
    fs::create_dir_all(dir.join("two")).unwrap();
    file(&dir, 0o600);
    symlink("../one/./two", dir.join("down")).unwrap();
    symlink(&dir, home.path().join("absolute")).unwrap();
    assert!(read(&home.path().join("absolute/down/../a.toml"), &TRUSTED).unwrap().is_some());
    symlink("loop", home.path().join("loop")).unwrap();
    assert!(matches!(read(&home.path().join("loop/a.toml"), &TRUSTED), Err(FileError::Io(_))));
}

#[test]
fn replacing_keeps_mode_and_owner() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.toml");
    replace(&path, b"one", &TRUSTED).unwrap();
    assert_eq!(mode(&path), 0o600);
    set_mode(&path, 0o640);
    replace(&path, b"two", &TRUSTED).unwrap();
    assert_eq!((mode(&path), read(&path, &TRUSTED).unwrap().unwrap()), (0o640, b"two".to_vec()));
    replace(&path, b"two", &SECRET).unwrap();
    assert_eq!(mode(&path), 0o600, "a policy's own rule comes first");
    replace(&path, b"two", &FilePolicy::output()).unwrap();
    assert_eq!(mode(&path), 0o600, "an output keeps what was private private");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    if is_root() {
        chown(&path, Some(OTHER), Some(OTHER)).unwrap();
        replace(&path, b"three", &FilePolicy::output()).unwrap();
        let there = fs::metadata(&path).unwrap();
        assert_eq!((there.uid(), there.gid(), mode(&path)), (OTHER, OTHER, 0o600));
    }
}

#[test]
fn replacing_does_not_follow_a_link() {
    let home = tempfile::tempdir().unwrap();
    let (path, other) = (home.path().join("a.toml"), home.path().join("other"));
    fs::write(&other, "other").unwrap();
    symlink(&other, &path).unwrap();
    replace(&path, b"new", &TRUSTED).unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "other");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(replace(&path, b"new", &TRUSTED).is_err());
}

#[test]
fn a_new_file_never_overwrites() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("deep/a.key");
    create_new(&path, b"one", &SECRET).unwrap();
    let error = create_new(&path, b"two", &SECRET).unwrap_err();
    assert!(matches!(error, FileError::Io(error) if error.kind() == io::ErrorKind::AlreadyExists));
    assert_eq!((read(&path, &SECRET).unwrap().unwrap(), mode(&path)), (b"one".to_vec(), 0o600));
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_lock_neither_follows_nor_changes_links() {
    let home = tempfile::tempdir().unwrap();
    let target = file(home.path(), 0o600);
    let lock = home.path().join(".lock");
    symlink(&target, &lock).unwrap();
    assert!(matches!(FileLock::try_acquire(&lock), Err(FileError::Refused(FileFault::SymbolicLink))));
    fs::remove_file(&lock).unwrap();
    fs::hard_link(&target, &lock).unwrap();
    assert!(matches!(FileLock::try_acquire(&lock), Err(FileError::Refused(FileFault::HardLink))));
    assert_eq!(fs::read_to_string(&target).unwrap(), "content");
}

#[test]
fn a_lock_is_held_by_one_until_it_is_dropped() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("deep/.lock");
    assert!(!FileLock::is_held(&path));
    let held = FileLock::try_acquire(&path).unwrap().unwrap();
    assert!(FileLock::is_held(&path));
    assert!(FileLock::acquire(&path, Duration::from_millis(20)).unwrap().is_none());
    drop(held);
    set_mode(&path, 0o644);
    assert!(FileLock::acquire(&path, Duration::ZERO).unwrap().is_some());
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_killed_writers_file_is_removed_by_the_next() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("vault");
    let lock = FileLock::try_acquire(&home.path().join("vault.lock")).unwrap().unwrap();
    fs::write(home.path().join("vault.tmp"), "half").unwrap();
    let mut staged = StagedFile::begin_locked(&path, &SECRET, &lock).unwrap();
    staged.write_all(b"whole").unwrap();
    staged.replace().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
    assert!(!home.path().join("vault.tmp").exists());
}
