//! Tests of the vault file: every lock, every kind of damage, and many writers at once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed assumption ends the test"
)]

mod restored;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_model::manifest::{ConnectorName, HostGrant};
use jiff::Timestamp;
use tempfile::TempDir;

use super::*;

const SECRET: &str = "xoxb-the-secret-of-slack";

fn secret(text: &str) -> Arc<Secret> {
    Arc::new(Secret::new(text.to_owned()))
}

fn binding(name: &str, material: SecretMaterial) -> Binding {
    Binding {
        name: BindingName::parse(name).unwrap(),
        material,
        hosts: vec![HostGrant::parse("slack.com:443").unwrap()],
        connectors: vec![ConnectorName::parse("github://acme/slack").unwrap()],
        created: Timestamp::UNIX_EPOCH,
        changed: Timestamp::UNIX_EPOCH,
        refused: None,
    }
}

fn key(name: &str) -> Binding {
    binding(name, SecretMaterial::ApiKey { key: secret(SECRET) })
}

fn add(vault: &dyn Vault, binding: &Binding) -> Result<(), VaultError> {
    vault.change(&mut |bindings| {
        bindings.insert(binding.clone());
        Ok(())
    })
}

fn names(vault: &dyn Vault) -> Vec<String> {
    vault.bindings().unwrap().iter().map(|binding| binding.name.to_string()).collect()
}

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn at(home: &TempDir) -> VaultFile {
    VaultFile::new(home.path().join("vault"))
}

/// A home with one binding in its vault, locked with a key file.
fn bound() -> TempDir {
    let home = home();
    add(&at(&home), &key("api_key/slack/work")).unwrap();
    home
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[track_caller]
fn refused(vault: &VaultFile, words: &str) {
    let before =
        fs::symlink_metadata(vault.path()).ok().map(|meta| (meta.ino(), meta.len(), meta.mtime_nsec()));
    let read = vault.bindings().map(drop).unwrap_err();
    let changed = add(vault, &key("api_key/other/x")).unwrap_err();
    for error in [read, changed] {
        let error = cofferdam_core::error::HostError::from(error);
        assert!(error.message().contains(words), "{words}: {error}");
        assert!(error.hint().is_some(), "{error}");
        assert!(!error.message().contains(vault.path().to_str().unwrap()), "callers see no paths: {error}");
    }
    let after =
        fs::symlink_metadata(vault.path()).ok().map(|meta| (meta.ino(), meta.len(), meta.mtime_nsec()));
    assert_eq!(before, after, "{words}: the file was touched");
}

#[test]
fn every_kind_of_secret_round_trips_encrypted() {
    let home = home();
    let vault = at(&home);
    assert!(vault.bindings().unwrap().iter().next().is_none());
    assert!(!vault.path().exists() && !vault.key_file_path().exists(), "reading makes nothing");
    let oauth = |grant, tokens| SecretMaterial::Oauth2 {
        token_url: "https://id.example/token".into(),
        client_id: "me".into(),
        client_secret: Some(secret("client-secret-1")),
        scopes: vec!["a".into(), "b".into()],
        grant,
        tokens,
    };
    let expires = Some("2027-01-02T03:04:05.6Z".parse().unwrap());
    let tokens = OauthTokens { access_token: secret("access-token-1"), expires };
    let aws = SecretMaterial::AwsSigv4 {
        access_key_id: "AKIDEXAMPLE".into(),
        secret_access_key: secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        session_token: Some(secret("session-token-1")),
        region: Some("eu-west-1".into()),
    };
    let mut bound = vec![
        key("api_key/slack/work"),
        binding(
            "basic/x/y",
            SecretMaterial::Basic { username: "ada".into(), password: secret("p\u{e4}ss \"\\ word") },
        ),
        binding("bearer/x/y", SecretMaterial::Bearer { token: secret("bearer-token-1") }),
        binding("oauth2/a/y", oauth(OauthGrant::RefreshToken(secret("refresh-token-1")), Some(tokens))),
        binding("oauth2/b/y", oauth(OauthGrant::ClientCredentials, None)),
        binding("aws_sigv4/s3/y", aws),
        binding("session_token/x/y", SecretMaterial::SessionToken { token: secret("session-token-2") }),
    ];
    bound[0].refused = Some("invalid_grant".into());
    bound.sort_by(|a, b| a.name.cmp(&b.name));
    for binding in &bound {
        add(&vault, binding).unwrap();
    }
    let shown = |binding: &Binding| {
        let secrets: Vec<_> = binding.material.secrets().iter().map(|it| it.expose().to_owned()).collect();
        let public = match &binding.material {
            SecretMaterial::Basic { username, .. } => username.clone(),
            SecretMaterial::Oauth2 { token_url, client_id, scopes, tokens, .. } => {
                format!("{token_url} {client_id} {scopes:?} {:?}", tokens.as_ref().map(|it| it.expires))
            }
            SecretMaterial::AwsSigv4 { access_key_id, region, .. } => format!("{access_key_id} {region:?}"),
            _ => String::new(),
        };
        let Binding { name, hosts, connectors, created, changed, refused, .. } = binding;
        format!("{name} {public} {secrets:?} {hosts:?} {connectors:?} {created} {changed} {refused:?}")
    };
    let again = at(&home).bindings().unwrap();
    assert_eq!(again.iter().map(shown).collect::<Vec<_>>(), bound.iter().map(shown).collect::<Vec<_>>());
    let file = fs::read(vault.path()).unwrap();
    for word in ["slack", "example", "AKID", "ada", "secret", "token", "2027"] {
        assert!(!file.windows(word.len()).any(|window| window == word.as_bytes()), "{word} is in the clear");
    }
    assert_eq!((mode(vault.path()), mode(vault.key_file_path())), (0o600, 0o600));
    let files: Vec<_> = fs::read_dir(home.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(files.len(), 5, "vault, its key and lock, home.state and the key that seals it: {files:?}");
}

#[test]
fn any_flipped_bit_makes_the_vault_unusable() {
    let home = bound();
    let path = home.path().join("vault");
    let file = fs::read(&path).unwrap();
    assert_eq!(file.len(), seal::HEADER_BYTES + seal::MARK_BYTES + 1024 + 16);
    for byte in 0..file.len() {
        let mut changed = file.clone();
        changed[byte] ^= 1 << (byte % 8);
        fs::write(&path, &changed).unwrap();
        let Err(VaultError::Unusable { message, .. }) = at(&home).bindings() else { panic!("byte {byte}") };
        assert!(
            message.contains("damaged") || message.contains("not a vault") || message.contains("version"),
            "{message}"
        );
    }
    for length in (0..file.len()).step_by(13) {
        fs::write(&path, &file[..length]).unwrap();
        assert!(matches!(at(&home).bindings(), Err(VaultError::Unusable { .. })), "{length} bytes");
    }
    fs::write(&path, [file.as_slice(), b"x"].concat()).unwrap();
    refused(&at(&home), "is damaged");
    fs::write(&path, &file).unwrap();
    assert_eq!(names(&at(&home)), ["api_key/slack/work"]);
}

#[test]
fn foreign_vault_files_are_refused_and_untouched() {
    let home = bound();
    let path = home.path().join("vault");
    let file = fs::read(&path).unwrap();
    for (contents, words) in [
        (&b""[..], "is empty"),
        (b"{\"secrets\": []}", "is not a vault"),
        (b"cofferdam vault\n\x00\x03 of a later day, and long enough to have a header in it, which takes a hundred and twelve bytes", "format version 3"),
    ] {
        fs::write(&path, contents).unwrap();
        refused(&at(&home), words);
    }
    fs::write(&path, &file).unwrap();
    for open in [0o640, 0o604, 0o620, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
        refused(&at(&home), "by others than its owner");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(names(&at(&home)), ["api_key/slack/work"]);

    fs::rename(&path, home.path().join("elsewhere")).unwrap();
    symlink("elsewhere", &path).unwrap();
    refused(&at(&home), "is a symbolic link");
    fs::remove_file(&path).unwrap();
    symlink("nowhere", &path).unwrap();
    refused(&at(&home), "is a symbolic link");
    fs::remove_file(&path).unwrap();
    let (kind, rw) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, rw, 0).unwrap();
    refused(&at(&home), "is not a regular file");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused(&at(&home), "is not a regular file");
    fs::remove_dir(&path).unwrap();
    // A sparse file of a gigabyte, which is rejected before it is read.
    let huge = fs::File::create(&path).unwrap();
    huge.set_len(1 << 30).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    refused(&at(&home), "more than 16 MiB");
}

#[test]
fn a_bad_key_file_opens_nothing_and_is_kept() {
    let home = bound();
    let vault = at(&home);
    let (path, aside) = (vault.key_file_path().to_owned(), home.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    refused(&at(&home), "which is not there");
    assert!(!path.exists());
    fs::write(&path, [7; 32]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    refused(&at(&home), "is not the one");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&at(&home), "by others than its owner");
    fs::write(&path, [7; 31]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    refused(&at(&home), "32 bytes");
    // One vault object detects that the key is back. The key may be a link.
    let vault = at(&home);
    refused(&vault, "32 bytes");
    fs::remove_file(&path).unwrap();
    symlink(&aside, &path).unwrap();
    assert_eq!(names(&vault), ["api_key/slack/work"]);
    assert_eq!(names(&at(&home).key_file(&aside)), ["api_key/slack/work"]);
}

#[test]
fn a_passphrase_is_derived_once_and_asked_again() {
    let home = home();
    let right = || Secret::new("correct horse battery".into());
    let vault = at(&home).passphrase(right());
    add(&vault, &key("api_key/slack/work")).unwrap();
    assert!(!vault.key_file_path().exists());
    assert_eq!(vault.status().unwrap().lock, Some(LockKind::Passphrase));
    refused(&at(&home).passphrase(Secret::new("wrong".into())), "does not open");
    refused(&at(&home), "none was given");

    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let source: PassphraseSource = Arc::new(move |wanted| {
        let before = count.fetch_add(1, Ordering::SeqCst);
        assert_eq!(wanted, if before == 0 { PassphraseFor::Opening } else { PassphraseFor::OpeningAgain });
        Ok(secret(if before == 0 { "oops" } else { "correct horse battery" }))
    });
    let vault = at(&home).passphrase_prompt(source);
    assert_eq!(names(&vault), ["api_key/slack/work"]);
    add(&vault, &key("api_key/slack/home")).unwrap();
    assert_eq!(names(&vault).len(), 2);
    assert_eq!(asked.load(Ordering::SeqCst), 2, "asked once more, and not again for the change");
}

#[test]
fn a_wrong_passphrase_is_derived_once() {
    let home = home();
    add(&at(&home).passphrase(Secret::new("right".into())), &key("api_key/slack/work")).unwrap();
    let given = Arc::new(std::sync::Mutex::new("wrong"));
    let gives = Arc::clone(&given);
    let vault = at(&home).passphrase_from(Arc::new(move |_| Ok(secret(*gives.lock().unwrap()))));
    let refusal = || {
        let began = std::time::Instant::now();
        assert!(matches!(vault.bindings().map(drop), Err(VaultError::Locked { .. })));
        began.elapsed()
    };
    let (first, again) = (refusal(), (0..3).map(|_| refusal()).min().unwrap());
    assert!(again < first / 2, "{again:?} after {first:?}");
    *given.lock().unwrap() = "right";
    assert_eq!(names(&vault), ["api_key/slack/work"]);
}

#[test]
fn a_lock_change_is_atomic() {
    let home = bound();
    let path = home.path().join("vault");
    let by_key = fs::read(&path).unwrap();
    let vault = at(&home);
    vault.relock(&NewLock::Passphrase(secret("first"))).unwrap();
    assert_eq!(names(&vault), ["api_key/slack/work"], "the same process goes on");
    assert_eq!(names(&at(&home).passphrase(Secret::new("first".into()))), ["api_key/slack/work"]);
    refused(&at(&home), "none was given");
    at(&home).passphrase(Secret::new("first".into())).relock(&NewLock::KeyFile).unwrap();
    assert_eq!(names(&at(&home)), ["api_key/slack/work"]);
    assert_ne!(fs::read(&path).unwrap(), by_key);

    // With a required passphrase, nothing is written into a vault that a key file opens: it may be a trap.
    refused(&at(&home).passphrase(Secret::new("first".into())), "locked with a key file");
    at(&home)
        .passphrase(Secret::new("second".into()))
        .relock(&NewLock::Passphrase(secret("second")))
        .unwrap();
    assert_eq!(names(&at(&home).passphrase(Secret::new("second".into()))), ["api_key/slack/work"]);
    let error = at(&home).passphrase(Secret::new("wrong".into())).relock(&NewLock::KeyFile).unwrap_err();
    assert!(matches!(error, VaultError::Locked { .. }), "{error}");
}

#[test]
fn changes_by_others_are_always_noticed() {
    let home = bound();
    let vault = at(&home);
    let first = vault.bindings().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    let second = vault.bindings().unwrap();
    let third = vault.known().unwrap();
    assert!(at(&home).known().is_none(), "nothing is opened for it");
    assert!(Arc::ptr_eq(&first, &second) && Arc::ptr_eq(&second, &third));
    // Many changes within one step of the file system's clock, each detected at once.
    let other = at(&home);
    for round in 0..50 {
        add(&other, &key(&format!("api_key/slack/n{round}"))).unwrap();
        assert_eq!(names(&vault).len(), round + 2);
    }
    fs::remove_file(vault.path()).unwrap();
    refused(&vault, "the vault is missing");
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let home = bound();
    let vault = at(&home);
    let before = fs::read(vault.path()).unwrap();
    let none = tempfile::tempdir().unwrap();
    let error =
        at(&none).change(&mut |_| Err(VaultError::Refused { message: "No.".into(), hint: "Do not.".into() }));
    assert!(matches!(error, Err(VaultError::Refused { .. })));
    assert!(!none.path().join("vault").exists() && !none.path().join("vault.key").exists());
    let error = vault.change(&mut |bindings| {
        bindings.remove(&BindingName::parse("api_key/slack/work").unwrap());
        Err(VaultError::Refused { message: "No.".into(), hint: "Do not.".into() })
    });
    assert!(matches!(error, Err(VaultError::Refused { .. })));
    assert_eq!(fs::read(vault.path()).unwrap(), before);
    assert_eq!(names(&vault), ["api_key/slack/work"]);
}

#[test]
fn a_no_op_change_writes_nothing() {
    let (none, home) = (home(), bound());
    at(&none).change(&mut |_| Ok(())).unwrap();
    assert!(!none.path().join("vault").exists() && !none.path().join("vault.key").exists());
    let vault = at(&home);
    let before = fs::metadata(vault.path()).unwrap().ino();
    add(&vault, &key("api_key/slack/work")).unwrap();
    assert_eq!(fs::metadata(vault.path()).unwrap().ino(), before);
}

#[test]
fn concurrent_changes_are_not_lost() {
    let home = home();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let vault = at(&home);
            scope.spawn(move || {
                for round in 0..10 {
                    add(&vault, &key(&format!("api_key/s{thread}/n{round}"))).unwrap();
                }
            });
        }
    });
    assert_eq!(names(&at(&home)).len(), 80);
}

#[test]
fn a_killed_writers_leftovers_are_removed() {
    let home = bound();
    let vault = at(&home);
    // A leftover file that cannot be removed has the same effect as a disk that rejects writes.
    fs::create_dir(home.path().join("vault.tmp")).unwrap();
    let error = add(&vault, &key("api_key/other/x")).unwrap_err();
    assert!(error.to_string().contains("it is as it was"), "{error}");
    assert_eq!(names(&at(&home)), ["api_key/slack/work"]);
    fs::remove_dir(home.path().join("vault.tmp")).unwrap();
    // The next writer removes the leftover file of a killed one.
    fs::write(home.path().join("vault.tmp"), "half").unwrap();
    add(&vault, &key("api_key/other/x")).unwrap();
    assert_eq!(names(&at(&home)).len(), 2);
    assert!(!home.path().join("vault.tmp").exists());
}

#[test]
fn a_writer_that_keeps_the_lock_is_an_error() {
    let home = bound();
    let other = fs::File::open(home.path().join("vault.lock")).unwrap();
    other.lock().unwrap();
    let mut vault = at(&home);
    vault.lock_timeout = Duration::from_millis(100);
    let error = add(&vault, &key("api_key/other/x")).unwrap_err();
    assert!(error.to_string().contains("Another process"), "{error}");
    assert_eq!(names(&vault), ["api_key/slack/work"], "reading waits for nobody");
    drop(other);
    add(&vault, &key("api_key/other/x")).unwrap();
}

#[test]
fn files_of_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = bound();
    let (vault, key) = (home.path().join("vault"), home.path().join("vault.key"));
    for path in [&vault, &key] {
        std::os::unix::fs::chown(path, Some(12_345), None).unwrap();
        refused(&at(&home), "belongs to another user");
        std::os::unix::fs::chown(path, Some(0), None).unwrap();
    }
    // A key file of root may be readable by one group, as service managers provide it; the vault may not.
    fs::set_permissions(&key, fs::Permissions::from_mode(0o440)).unwrap();
    assert_eq!(names(&at(&home)), ["api_key/slack/work"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o444)).unwrap();
    refused(&at(&home), "by others than its owner");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(&vault, fs::Permissions::from_mode(0o440)).unwrap();
    refused(&at(&home), "by others than its owner");
}

#[test]
fn vaults_of_every_version_open() {
    let private = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let (by_key, by_passphrase) = (home(), home());
    private(&by_key.path().join("vault"), include_bytes!("../../../../tests/vault/v1-key-file.vault"));
    private(&by_key.path().join("vault.key"), include_bytes!("../../../../tests/vault/v1-key-file.key"));
    private(
        &by_passphrase.path().join("vault"),
        include_bytes!("../../../../tests/vault/v1-passphrase.vault"),
    );
    let passphrase = Secret::new("correct horse battery".into());
    for vault in [at(&by_key), at(&by_passphrase).passphrase(passphrase)] {
        let bindings = vault.bindings().unwrap();
        let secrets = bindings.iter().map(|binding| {
            let secrets = binding.material.secrets();
            let secrets: Vec<_> = secrets.iter().map(|secret| secret.expose()).collect();
            format!("{} {} {}", binding.name, binding.hosts[0], secrets.join(" "))
        });
        assert_eq!(
            secrets.collect::<Vec<_>>(),
            [
                "basic/jira/default http://localhost:8080 p\u{e4}ssword \"of\" old",
                "bearer/slack/work slack.com:443 bearer-token-of-old",
                "oauth2/google/default api.example:443 client-secret-of-old refresh-token-of-old",
                "aws_sigv4/s3/default s3.example:443 secret-key-of-old session-token-of-old",
            ]
        );
        add(&vault, &key("api_key/slack/new")).unwrap();
        assert_eq!(names(&vault).len(), 5);
    }
}
