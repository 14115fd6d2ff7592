//! Vaults over real directories, real commands and variables.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::privileged::ExposeSecret as _;
use cofferdam_core::secret::Secret;
use cofferdam_test_support::process::write_program;
use tempfile::TempDir;

use super::{
    ExternalVault, SecretCommand, SecretCommandSettings, SecretDirectory, SecretVariables, without_tokens,
};
use crate::vault::{
    Binding, BindingName, Bindings, OauthGrant, OauthTokens, SecretMaterial, Vault, VaultError,
};

const SECRET: &str = "xoxb-canary-7c2f-of-the-store";

const GRANTS: &str = "hosts = [\"a.example:443\"]\nconnectors = [\"github://acme/a\"]\n";

fn file(dir: &TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("bindings.toml");
    fs::write(&path, text).unwrap();
    path
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
}

fn binding(name: &str, secret: &str, more: &str) -> String {
    format!("[[binding]]\nname = \"{name}\"\nsecret = \"{secret}\"\n{GRANTS}{more}\n")
}

fn name(text: &str) -> BindingName {
    BindingName::parse(text).unwrap()
}

fn token(bindings: &Bindings, of: &str) -> String {
    match &bindings.get(&name(of)).unwrap().material {
        SecretMaterial::Bearer { token } => token.expose().to_owned(),
        SecretMaterial::Oauth2 { grant: OauthGrant::RefreshToken(token), .. } => token.expose().to_owned(),
        _ => unreachable!(),
    }
}

/// Reads the bindings until `done` holds: changes are found within a second.
fn until(vault: &ExternalVault, done: impl Fn(&Result<Arc<Bindings>, VaultError>) -> bool) {
    for _ in 0..200 {
        if done(&vault.bindings()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    unreachable!("it was not seen within five seconds");
}

#[test]
fn a_swapped_link_is_seen() {
    // As the kubelet does it: ..data leads to a directory of the present version, and is replaced by a rename.
    let (mount, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let version = |number: &str, text: &str| {
        let dir = mount.path().join(format!("..{number}"));
        fs::create_dir(&dir).unwrap();
        write_secret(&dir.join("token"), text);
        symlink(format!("..{number}"), mount.path().join("..new")).unwrap();
        fs::rename(mount.path().join("..new"), mount.path().join("..data")).unwrap();
    };
    version("1", SECRET);
    symlink("..data/token", mount.path().join("token")).unwrap();
    let file = file(&config, &binding("bearer/a", "token", ""));
    let vault = ExternalVault::directory(file, SecretDirectory::new(mount.path()));
    let first = vault.bindings().unwrap();
    assert_eq!(token(&first, "bearer/a"), SECRET);
    assert!(Arc::ptr_eq(&first, &vault.bindings().unwrap()), "nothing changed");
    version("2", "the-second-secret\n");
    until(&vault, |now| now.as_ref().is_ok_and(|now| token(now, "bearer/a") == "the-second-secret"));
    let changed = |bindings: &Bindings| bindings.get(&name("bearer/a")).unwrap().changed;
    assert!(
        changed(&vault.bindings().unwrap()) > changed(&first),
        "connections are not shared with the old one"
    );
    // Gone while the kubelet is at work, or for good.
    fs::remove_file(mount.path().join("..data")).unwrap();
    until(&vault, |now| now.as_ref().is_ok_and(|now| now.unavailable(&name("bearer/a")).is_some()));
}

#[test]
fn one_missing_file_leaves_the_others() {
    let (mount, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_secret(&mount.path().join("good"), SECRET);
    write_secret(&mount.path().join("open"), SECRET);
    fs::set_permissions(mount.path().join("open"), fs::Permissions::from_mode(0o444)).unwrap();
    write_secret(&mount.path().join("long"), &"x".repeat(70_000));
    write_secret(&mount.path().join("lines"), "one\ntwo\n");
    fs::create_dir(mount.path().join("dir")).unwrap();
    let texts = ["good", "missing", "open", "long", "lines", "dir"];
    let text: String = texts.iter().map(|it| binding(&format!("bearer/{it}"), it, "")).collect();
    let vault = ExternalVault::directory(file(&config, &text), SecretDirectory::new(mount.path()));
    let bindings = vault.bindings().unwrap();
    assert_eq!(token(&bindings, "bearer/good"), SECRET);
    for (secret, words) in [
        ("missing", "does not exist"),
        ("open", "can be read by others"),
        ("long", "64 KiB"),
        ("lines", "more than one line"),
        ("dir", "not a regular file"),
    ] {
        let problem = bindings.unavailable(&name(&format!("bearer/{secret}"))).unwrap();
        let said = format!("{} {}", problem.message, problem.hint);
        assert!(said.contains(words) && said.contains(&format!("file {secret}")), "{said}");
        assert!(!said.contains(SECRET) && !said.contains(mount.path().to_str().unwrap()), "{said}");
    }
}

#[test]
fn the_bindings_file_says_where_it_is_wrong() {
    let (mount, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = config.path().join("bindings.toml");
    let vault = ExternalVault::directory(&path, SecretDirectory::new(mount.path()));
    let said = |vault: &ExternalVault| vault.bindings().err().unwrap().to_string();
    assert!(said(&vault).contains("bindings.toml) does not exist"), "{}", said(&vault));
    let good = binding("bearer/a", "token", "");
    for (text, words) in [
        (good.replace("secret = \"token\"\n", ""), "binding[0].secret"),
        (good.replace("\"token\"", "\"../token\""), "bindings.toml:3:10"),
        (good.replace("\"token\"", "\".token\""), "bindings.toml:3:10"),
        (good.replace("hosts = [\"a.example:443\"]", "hosts = []"), "hosts"),
        (good.replace("a.example:443", "a.example"), "bindings.toml:4:10"),
        (good.replace("connectors", "connector"), "binding[0].connectors"),
        (good.replace("bearer/a", "bear/a"), "bindings.toml:2:8"),
        (format!("{good}{good}"), "twice"),
        (format!("{good}username = \"x\"\n"), "not known"),
        ("[[bindings]]\n".to_owned(), "did you mean"),
    ] {
        fs::write(&path, &text).unwrap();
        let error = vault
            .bindings()
            .err()
            .map(|error| format!("{:?}", cofferdam_core::error::HostError::from(error)));
        assert!(error.as_ref().is_some_and(|error| error.contains(words)), "{text}: {error:?}");
    }
    fs::write(&path, &good).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(said(&vault).contains("can be written by others"), "{}", said(&vault));
}

#[test]
fn variables_are_read_by_name() {
    let config = tempfile::tempdir().unwrap();
    let variables = HashMap::from([("A_TOKEN".to_owned(), OsString::from(SECRET))]);
    let text = binding("bearer/a", "A_TOKEN", "") + &binding("bearer/b", "B_TOKEN", "");
    let lookup = move |name: &str| variables.get(name).cloned();
    let path = file(&config, &text);
    let vault = ExternalVault::environment(&path, SecretVariables::new(Box::new(lookup)));
    let bindings = vault.bindings().unwrap();
    assert_eq!(token(&bindings, "bearer/a"), SECRET);
    let problem = bindings.unavailable(&name("bearer/b")).unwrap();
    assert!(problem.message.contains("variable B_TOKEN is not set"), "{}", problem.message);
    fs::write(&path, text.replace("A_TOKEN", "A-TOKEN")).unwrap();
    until(&vault, |now| now.as_ref().is_err_and(|error| error.to_string().contains("bindings.toml:3")));
}

#[test]
fn operators_change_the_file_and_not_the_vault() {
    let (mount, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_secret(&mount.path().join("token"), SECRET);
    let file = file(&config, &binding("bearer/a", "token", ""));
    let vault = ExternalVault::directory(file, SecretDirectory::new(mount.path()));
    let widened = vault.change(&mut |bindings: &mut Bindings| {
        let binding = bindings.get_mut(&name("bearer/a")).unwrap();
        binding.hosts.push(cofferdam_model::manifest::HostGrant::parse("evil.example:443").unwrap());
        Ok(())
    });
    let Err(VaultError::Refused { message, hint }) = widened else { unreachable!("it was widened") };
    assert!(message.contains("bindings.toml") && hint.contains("binding test"), "{message} {hint}");
    assert_eq!(vault.bindings().unwrap().get(&name("bearer/a")).unwrap().hosts.len(), 1);
    assert!(
        vault
            .change(&mut |bindings: &mut Bindings| {
                drop(bindings.remove(&name("bearer/a")));
                Ok(())
            })
            .is_err()
    );
    assert!(vault.check_editable().is_err());
}

const OAUTH: &str = "token_url = \"https://id.example/token\"\nclient_id = \"me\"\n";

fn renew(vault: &ExternalVault, access: &str, refresh: Option<&str>) -> Result<(), VaultError> {
    let secret = |text: &str| Arc::new(Secret::new(text.to_owned()));
    vault.change(&mut |bindings: &mut Bindings| {
        let binding = bindings.get_mut(&name("oauth2/a")).unwrap();
        let SecretMaterial::Oauth2 { tokens, grant, .. } = &mut binding.material else { unreachable!() };
        *tokens = Some(OauthTokens { access_token: secret(access), expires: None });
        if let (OauthGrant::RefreshToken(token), Some(refresh)) = (grant, refresh) {
            *token = secret(refresh);
        }
        Ok(())
    })
}

fn access(binding: &Binding) -> Option<String> {
    match &binding.material {
        SecretMaterial::Oauth2 { tokens, .. } => {
            tokens.as_ref().map(|tokens| tokens.access_token.expose().to_owned())
        }
        _ => None,
    }
}

#[test]
fn tokens_are_kept_until_the_secret_changes() {
    let (mount, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = mount.path().join("oauth");
    write_secret(&path, "{\"client_secret\": \"c-secret\", \"refresh_token\": \"refresh-1\"}");
    let text = binding("oauth2/a", "oauth", OAUTH);
    let file = file(&config, &text);
    let vault = ExternalVault::directory(&file, SecretDirectory::new(mount.path()));
    let first = vault.bindings().unwrap();
    assert_eq!(token(&first, "oauth2/a"), "refresh-1");
    let error = vault.check_writable(&name("oauth2/a")).unwrap_err();
    assert!(error.to_string().contains("cannot store"), "{error}");
    renew(&vault, "access-1", None).unwrap();
    let renewed = vault.reload().unwrap();
    assert_eq!(access(renewed.get(&name("oauth2/a")).unwrap()).as_deref(), Some("access-1"));
    assert!(super::is_same(&without_tokens(&first), &without_tokens(&renewed)), "the same binding");
    // The operator says that the issuer keeps it, and is wrong: it is used as long as this process runs.
    fs::write(&file, format!("{text}refresh_token_rotates = false\n")).unwrap();
    until(&vault, |_| vault.check_writable(&name("oauth2/a")).is_ok());
    renew(&vault, "access-2", Some("refresh-2")).unwrap();
    assert_eq!(token(&vault.reload().unwrap(), "oauth2/a"), "refresh-2");
    // A new secret of the operator's wins over everything.
    fs::remove_file(&path).unwrap();
    write_secret(&path, "refresh-9");
    until(&vault, |now| now.as_ref().is_ok_and(|now| token(now, "oauth2/a") == "refresh-9"));
    assert_eq!(access(vault.bindings().unwrap().get(&name("oauth2/a")).unwrap()), None);
}

#[test]
fn a_secret_does_not_decide_where_it_is_sent() {
    let (mount, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (field, value) in [("token_url", "https://evil.example/token"), ("client_id", "evil")] {
        write_secret(
            &mount.path().join(field),
            &format!("{{\"refresh_token\": \"{SECRET}\", \"{field}\": \"{value}\"}}"),
        );
        // The field is missing in the binding in one case, and would replace its value in the other.
        for parts in ["", OAUTH] {
            let file = file(&config, &binding("oauth2/a", field, parts));
            let vault = ExternalVault::directory(file, SecretDirectory::new(mount.path()));
            let bindings = vault.bindings().unwrap();
            assert!(bindings.get(&name("oauth2/a")).is_none());
            let problem = bindings.unavailable(&name("oauth2/a")).unwrap();
            let said = format!("{} {}", problem.message, problem.hint);
            assert!(said.contains("token_url") && said.contains("bindings.toml"), "{said}");
            assert!(!said.contains(SECRET) && !said.contains("evil"), "{said}");
        }
    }
}

/// A command: a script that the test writes.
fn script(dir: &TempDir, text: &str) -> SecretCommandSettings {
    let program = dir.path().join("get-secret");
    write_program(&program, &format!("#!/bin/sh\n{text}\n"));
    SecretCommandSettings {
        program,
        arguments: vec!["--from".into(), dir.path().into()],
        environment: vec![("PATH".into(), "/usr/bin:/bin".into()), ("MARK".into(), "named".into())],
        timeout: Duration::from_secs(5),
        cache: Duration::from_secs(60),
        stores: false,
    }
}

#[test]
fn a_command_answers_one_line_for_all() {
    let (dir, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = script(
        &dir,
        "read -r line; echo \"$line\" >> \"$2/requests\"; env >> \"$2/environment\"; echo leaked-by-stderr >&2\n\
         printf '{\"version\":1,\"secrets\":{\"one\":\"xoxb-canary-7c2f-of-the-store\"}}\\n'",
    );
    let text = binding("bearer/a", "one", "") + &binding("bearer/b", "two", "");
    let vault = ExternalVault::command(file(&config, &text), SecretCommand::new(settings));
    let bindings = vault.bindings().unwrap();
    assert_eq!(token(&bindings, "bearer/a"), SECRET);
    let problem = bindings.unavailable(&name("bearer/b")).unwrap();
    assert!(problem.message.contains("secret two") && problem.message.contains("get-secret"), "{problem:?}");
    std::thread::sleep(Duration::from_millis(1100));
    assert!(Arc::ptr_eq(&bindings, &vault.bindings().unwrap()));
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("requests"), "{\"version\":1,\"get\":[\"one\",\"two\"]}\n", "asked once");
    assert!(read("environment").contains("MARK=named") && !read("environment").contains("CARGO"));
}

#[test]
fn a_failing_command_is_named_without_its_output() {
    let config = tempfile::tempdir().unwrap();
    let file = file(&config, &binding("bearer/a", "one", ""));
    for (text, words) in [
        (format!("echo {SECRET}; echo {SECRET} >&2; exit 3"), "exit code 3"),
        (format!("echo {SECRET}"), "no answer in JSON"),
        (format!("echo '{{\"version\":1}}'; echo {SECRET}"), "exactly one line"),
        ("kill -9 $$".to_owned(), "a signal"),
        ("sleep 30".to_owned(), "did not end"),
        ("head -c 2000000 /dev/zero".to_owned(), "1 MiB"),
        ("sleep 30 & exec 1>&-; sleep 30".to_owned(), "did not end"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let settings = SecretCommandSettings { timeout: Duration::from_millis(700), ..script(&dir, &text) };
        let vault = ExternalVault::command(&file, SecretCommand::new(settings));
        let error = cofferdam_core::error::HostError::from(vault.bindings().err().unwrap());
        let said = format!("{} {}", error.message(), error.hint().unwrap_or_default());
        assert!(said.contains(words) && said.contains("get-secret"), "{text}: {said}");
        assert!(!said.contains(SECRET), "{said}");
    }
    let missing = SecretCommandSettings {
        program: "/nonexistent/get-secret".into(),
        ..script(&tempfile::tempdir().unwrap(), "")
    };
    let error = ExternalVault::command(&file, SecretCommand::new(missing)).bindings().err().unwrap();
    assert!(error.to_string().contains("cannot be started"), "{error}");
}

#[test]
fn a_command_can_store_a_renewed_token() {
    let (dir, config) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let answer = |refresh: &str| {
        let secret =
            format!("{{\\\"client_secret\\\":\\\"c-secret\\\",\\\"refresh_token\\\":\\\"{refresh}\\\"}}");
        format!("{{\"version\":1,\"secrets\":{{\"oauth\":\"{secret}\"}}}}")
    };
    fs::write(dir.path().join("answer"), answer("refresh-1")).unwrap();
    let settings = script(
        &dir,
        "read -r line; case \"$line\" in *'\"store\"'*) echo \"$line\" > \"$2/stored\"\n\
         cat \"$2/verdict\"; exit;; esac; cat \"$2/answer\"",
    );
    let settings = SecretCommandSettings { stores: true, ..settings };
    let file = file(&config, &binding("oauth2/a", "oauth", OAUTH));
    let vault = ExternalVault::command(file, SecretCommand::new(settings));
    assert_eq!(token(&vault.bindings().unwrap(), "oauth2/a"), "refresh-1");
    vault.check_writable(&name("oauth2/a")).unwrap();
    // Not stored: the error says so, and the token is not lost while this process runs.
    fs::write(dir.path().join("verdict"), "{\"version\":1}").unwrap();
    assert!(renew(&vault, "access-1", Some("refresh-2")).is_err());
    assert_eq!(token(&vault.bindings().unwrap(), "oauth2/a"), "refresh-2");
    fs::write(dir.path().join("verdict"), "{\"version\":1,\"stored\":true}").unwrap();
    renew(&vault, "access-2", Some("refresh-3")).unwrap();
    let stored = fs::read_to_string(dir.path().join("stored")).unwrap();
    let request: serde_json::Value = serde_json::from_str(&stored).unwrap();
    let secret: serde_json::Value =
        serde_json::from_str(request["store"]["secret"].as_str().unwrap()).unwrap();
    assert_eq!(request["store"]["name"], "oauth");
    assert_eq!(secret, serde_json::json!({ "client_secret": "c-secret", "refresh_token": "refresh-3" }));
    // The store returns the old one for a while, and then the new one: both are the same grant.
    let before = vault.reload().unwrap();
    fs::write(dir.path().join("answer"), answer("refresh-3")).unwrap();
    let after = vault.reload().unwrap();
    let changed = |bindings: &Bindings| bindings.get(&name("oauth2/a")).unwrap().changed;
    assert_eq!(changed(&before), changed(&after));
    assert_eq!(access(after.get(&name("oauth2/a")).unwrap()).as_deref(), Some("access-2"));
    // Another operator's token is another grant.
    fs::write(dir.path().join("answer"), answer("refresh-9")).unwrap();
    let other = vault.reload().unwrap();
    assert_eq!(
        (token(&other, "oauth2/a"), access(other.get(&name("oauth2/a")).unwrap())),
        ("refresh-9".into(), None)
    );
}
