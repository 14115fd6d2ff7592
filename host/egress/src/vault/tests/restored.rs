//! A vault that is missing or restored from an older copy.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;

use super::{add, at, bound, key, refused};
use crate::vault::Vault as _;

#[test]
fn a_rolled_back_vault_is_refused_until_accepted() {
    let home = bound();
    let copy = fs::read(home.path().join("vault")).unwrap();
    add(&at(&home), &key("api_key/slack/second")).unwrap();
    fs::write(home.path().join("vault"), &copy).unwrap();
    refused(&at(&home), "older than home.state says");
    let moved = home.path().join("moved");
    fs::rename(home.path().join("vault"), &moved).unwrap();
    refused(&at(&home), "is missing");
    // An older state that is restored with it is consistent; alone, the vault is rejected.
    fs::rename(&moved, home.path().join("vault")).unwrap();
    let state = cofferdam_core::home_state::HomeState::new(home.path());
    state.accept(0, [0; 32]).unwrap();
    assert_eq!(at(&home).bindings().unwrap().iter().count(), 1);
    add(&at(&home), &key("api_key/slack/third")).unwrap();
    fs::remove_file(home.path().join("home.state")).unwrap();
    refused(&at(&home), "home.state is missing");
}

#[test]
fn a_vault_written_before_a_crash_is_used() {
    let home = bound();
    let state = fs::read(home.path().join("home.state")).unwrap();
    for n in 0..3 {
        add(&at(&home), &key(&format!("api_key/slack/n{n}"))).unwrap();
        if n == 0 {
            // The process was killed between writing the vault and the state.
            fs::write(home.path().join("home.state"), &state).unwrap();
        }
    }
    assert_eq!(at(&home).bindings().unwrap().iter().count(), 4);
}

#[test]
fn a_first_version_vault_is_read_and_gets_counters() {
    let home = bound();
    let vault = at(&home);
    let bytes = fs::read(vault.path()).unwrap();
    assert_eq!(bytes.get(16..18), Some(&[0, 2][..]));
    let opened = vault.bindings().unwrap();
    let key = crate::vault::seal::VaultKey::from_key_file(
        &fs::read(vault.key_file_path()).unwrap().try_into().unwrap(),
        crate::vault::seal::VaultHeader::read(&bytes).unwrap().0.salt,
    );
    let old = key.seal(crate::vault::contents::write(&opened).unwrap(), None).unwrap();
    fs::write(vault.path(), &old).unwrap();
    fs::remove_file(home.path().join("home.state")).unwrap();
    assert_eq!(at(&home).bindings().unwrap().iter().count(), 1);
    add(&at(&home), &super::key("api_key/slack/new")).unwrap();
    fs::write(home.path().join("vault"), &old).unwrap();
    refused(&at(&home), "older than home.state says");
}
