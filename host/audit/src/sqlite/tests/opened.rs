//! Other contents in place of the file: other versions, no database, damage, links, pipes, other hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::*;
use crate::AuditErrorKind;

/// Returns the error of the first order.
fn trouble(home: &Path) -> AuditError {
    open(&log(home), &AuditId::mint()).unwrap_err()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/fixtures")
}

/// Makes a file its owner's alone.
fn private(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A home with this key.
fn home_with_key() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let key = home.path().join("host.key");
    fs::write(&key, [7; 32]).unwrap();
    private(&key);
    home
}

/// Regenerated with COFFERDAM_BLESS, as long as its version is not released.
#[test]
fn a_version_1_log_is_read_and_continued() {
    if std::env::var_os("COFFERDAM_BLESS").is_some() {
        let home = home_with_key();
        fill_at(home.path(), 3, Timestamp::from_second(1_700_000_000).unwrap());
        fs::create_dir_all(fixtures()).unwrap();
        fs::copy(home.path().join("audit.db"), fixtures().join("v1.db")).unwrap();
        fs::copy(home.path().join("audit.checkpoint"), fixtures().join("v1.checkpoint")).unwrap();
    }
    let home = home_with_key();
    fs::copy(fixtures().join("v1.db"), home.path().join("audit.db")).unwrap();
    fs::copy(fixtures().join("v1.checkpoint"), home.path().join("audit.checkpoint")).unwrap();
    private(&home.path().join("audit.db"));
    let before = proof(home.path());
    assert!(before.findings.is_empty(), "{:?}", before.findings);
    assert_eq!((before.n, before.tally.calls), (6, 3));
    fill(home.path(), 2);
    let after = proof(home.path());
    assert!(after.findings.is_empty(), "{:?}", after.findings);
    assert_eq!((after.n, after.tally.calls), (10, 5));
}

#[test]
fn an_empty_file_is_initialised_and_a_newer_refused() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("audit.db"), "").unwrap();
    private(&home.path().join("audit.db"));
    fill(home.path(), 1);
    let version: i64 = file(home.path()).query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    file(home.path()).pragma_update(None, "user_version", version + 1).unwrap();
    let error = trouble(home.path());
    assert_eq!(error.kind(), AuditErrorKind::TooNew);
    assert!(error.to_string().contains(&format!("version {}", version + 1)), "{error}");
    assert_eq!(log(home.path()).reader().err().map(|error| error.kind()), Some(AuditErrorKind::TooNew));
}

#[test]
fn foreign_files_are_left_untouched() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("audit.db");
    fs::write(&path, "dear diary".repeat(1_000)).unwrap();
    private(&path);
    assert_eq!(trouble(home.path()).kind(), AuditErrorKind::Corrupt);
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary".repeat(1_000));
    fs::remove_file(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA application_id = 7; CREATE TABLE recipes (name TEXT)").unwrap();
    drop(other);
    private(&path);
    assert_eq!(trouble(home.path()).kind(), AuditErrorKind::Corrupt);
    assert_eq!(count(home.path(), "sqlite_schema"), 1);
}

#[test]
fn a_database_with_foreign_triggers_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let host = log(home.path());
    open(&host, &AuditId::mint()).unwrap();
    let trigger = "CREATE TRIGGER t AFTER INSERT ON calls BEGIN DELETE FROM calls; END";
    file(home.path()).execute_batch(trigger).unwrap();
    // Not by a host that lives,
    open(&host, &AuditId::mint()).unwrap();
    assert_eq!(count(home.path(), "calls"), 2);
    // and the next host reports it, as every reader does.
    let error = trouble(home.path());
    assert_eq!(error.kind(), AuditErrorKind::Corrupt);
    assert!(error.to_string().contains("trigger \"t\""), "{error}");
    assert_eq!(log(home.path()).reader().err().map(|error| error.kind()), Some(AuditErrorKind::Corrupt));
    assert_eq!(log(home.path()).evidence().err().map(|error| error.kind()), Some(AuditErrorKind::Corrupt));
    for change in ["CREATE VIEW t AS SELECT 1", "CREATE INDEX t ON calls (actor)", "DROP INDEX calls_open"] {
        let home = tempfile::tempdir().unwrap();
        fill(home.path(), 1);
        file(home.path()).execute_batch(change).unwrap();
        assert_eq!(trouble(home.path()).kind(), AuditErrorKind::Corrupt, "{change}");
    }
}

#[test]
fn a_log_readable_by_others_is_refused_with_a_fix() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 1);
    let path = home.path().join("audit.db");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = trouble(home.path());
    assert_eq!(error.kind(), AuditErrorKind::Exposed);
    assert!(error.to_string().contains("mode 640") && error.kind().fix().contains("chmod 600"), "{error}");
    assert!(log(home.path()).reader().is_err());
    private(&path);
    fill(home.path(), 1);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn disk_errors_are_transient_and_not_called_full() {
    use rusqlite::ffi;
    for code in [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_FSYNC] {
        let trouble = AuditError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)).kind();
        assert_eq!(trouble, AuditErrorKind::Io);
        assert!(trouble.may_pass() && !trouble.says().contains("room"));
    }
}

#[test]
fn damage_is_reported_and_repair_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 200);
    let path = home.path().join("audit.db");
    let whole = fs::read(&path).unwrap();
    let mut broken = whole.clone();
    broken[4_096..].iter_mut().for_each(|byte| *byte = 0xa5);
    fs::write(&path, broken).unwrap();
    let log = log(home.path());
    assert_eq!(open(&log, &AuditId::mint()).unwrap_err().kind(), AuditErrorKind::Corrupt);
    // The same host, after the file was restored.
    for name in ["audit.db-wal", "audit.db-shm"] {
        let _ = fs::remove_file(home.path().join(name));
    }
    fs::write(&path, whole).unwrap();
    open(&log, &AuditId::mint()).unwrap();
    drop(log);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn links_directories_and_pipes_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("audit.db");
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path().join("there.db"), &path).unwrap();
    assert!(trouble(home.path()).to_string().contains("link"));
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "a link is not followed");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(trouble(home.path()).to_string().contains("not a regular file"));
    fs::remove_dir(&path).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    assert!(trouble(home.path()).to_string().contains("not a regular file"));
}

#[test]
fn an_exposed_key_signs_and_writes_nothing() {
    let home = home_with_key();
    fs::set_permissions(home.path().join("host.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = trouble(home.path());
    assert_eq!(error.kind(), AuditErrorKind::Key);
    assert!(error.to_string().contains("by others"), "{error}");
    assert!(!home.path().join("audit.db").exists());
}

#[test]
fn waiting_for_another_host_times_out() {
    let home = tempfile::tempdir().unwrap();
    let log = log(home.path());
    let id = AuditId::mint();
    open(&log, &id).unwrap();
    let other = file(home.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(open(&log, &AuditId::mint()).unwrap_err().kind(), AuditErrorKind::Locked);
    other.execute_batch("ROLLBACK").unwrap();
    close(&log, &id).unwrap();
    drop(log);
    assert!(findings(home.path()).is_empty());
}

#[test]
fn a_file_that_cannot_grow_is_reported_as_full() {
    let home = tempfile::tempdir().unwrap();
    fill(home.path(), 1);
    let settings = LogSettings::default();
    let connection = super::super::schema::open(&home.path().join("audit.db"), &settings).unwrap();
    connection.pragma_update(None, "max_page_count", 1).unwrap();
    let error = connection.execute_batch("CREATE TABLE more (text TEXT)").unwrap_err();
    assert_eq!(AuditError::from(error).kind(), AuditErrorKind::Full);
}
