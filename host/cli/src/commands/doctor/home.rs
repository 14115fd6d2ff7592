//! The checks of the home directory and of the author's key.

use std::path::Path;

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::private_file::{self, FileError};
use cofferdam_egress::vault::LockKind;
use cofferdam_runtime::host::{BindingView, Host};

use super::Check;
use crate::commands::key;
use crate::config_file::ConfigFile;
use crate::session::Session;
use crate::vault_config::HomeVault;
use crate::{author_key, files};

/// Checks the home, as far as it is there, and the author's key.
pub(super) fn check(session: &Session<'_>) -> Vec<Check> {
    let mut checks = vec![author_key()];
    let home = match session.home() {
        Ok(home) => home,
        Err(error) => {
            checks.push(Check::of("home", true, Err(error)));
            return checks;
        }
    };
    if !home.exists() {
        checks.push(Check::good("home", format!("{} does not exist yet", files::shown(&home))));
        return checks;
    }
    checks.push(Check::of("home", true, directory(&home)));
    checks.push(Check::of(
        "settings",
        true,
        ConfigFile::load(&home).map(|_| "config.toml is valid".to_owned()),
    ));
    let keyring = session.keyring().and_then(|file| file.load());
    checks.push(Check::of(
        "keyring",
        true,
        keyring.map(|keyring| format!("{} trusted keys", keyring.entries().len())),
    ));
    match session.host_and_vault() {
        Ok((host, vault)) => {
            checks.push(Check::of("connectors", true, connectors(&host)));
            checks.push(vault_check(&host, &vault));
            if home.join("audit").exists() {
                let complete = host.audit().check_complete();
                checks.push(Check::of(
                    "audit log",
                    true,
                    complete.map(|()| "complete; `cofferdam audit verify` checks all of it".into()),
                ));
            }
        }
        // The settings above have said why.
        Err(_) if ConfigFile::load(&home).is_err() => {}
        Err(error) => checks.push(Check::of("host", true, Err(error))),
    }
    checks
}

/// Checks the place of the secrets: that the sealed file has its key, or that each secret can be had.
fn vault_check(host: &Host, vault: &HomeVault) -> Check {
    let HomeVault::File(vault) = vault else {
        let bindings = host.bindings();
        return Check::of("vault", true, bindings.and_then(|bindings| available(&bindings)));
    };
    match vault.status().map_err(HostError::from) {
        Ok(status) => match status.lock {
            None => Check::good("vault", "no bindings yet"),
            Some(LockKind::KeyFile) if !status.has_key_file => Check::bad(
                "vault",
                "its key file is missing",
                "Put the file vault.key back from a backup, or name it under [vault] in config.toml.",
            ),
            Some(LockKind::KeyFile) => Check::good("vault", "locked with a key file"),
            Some(LockKind::Passphrase) => Check::good("vault", "locked with a passphrase"),
        },
        Err(error) => Check::of("vault", true, Err(error)),
    }
}

fn available(bindings: &[BindingView]) -> Result<String, HostError> {
    match bindings.iter().find(|binding| binding.status == "unavailable") {
        None => Ok(format!("{} bindings, and each secret can be had", bindings.len())),
        Some(binding) => {
            Err(HostError::new(HostErrorKind::VaultUnusable, binding.refused.clone().unwrap_or_default())
                .with_hint(format!("Try it again with `cofferdam binding test {}`.", binding.name)))
        }
    }
}

fn directory(home: &Path) -> Result<String, HostError> {
    let wrong =
        |message: String, fix: &str| HostError::new(HostErrorKind::Configuration, message).with_hint(fix);
    let shown = files::shown(home);
    private_file::check_dir(home).map_err(|error| match error {
        FileError::Refused(fault) => {
            fault.into_host_error(HostErrorKind::Configuration, &format!("The home {shown}"))
        }
        error => files::unreadable("The home", home, error.into()),
    })?;
    rustix::fs::access(home, rustix::fs::Access::WRITE_OK).map_err(|error| {
        wrong(
            format!("{shown} cannot be written: {}.", files::reason(&error.into())),
            "Give this user the permission.",
        )
    })?;
    Ok(shown)
}

fn connectors(host: &Host) -> Result<String, HostError> {
    let count = host.list()?.len();
    if host.has_lost_its_index() {
        return Err(HostError::new(
            HostErrorKind::RegistryUnavailable,
            "The index of the installed connectors is missing.",
        )
        .with_hint("Run `cofferdam verify --rebuild-index`."));
    }
    Ok(format!("{count} installed; `cofferdam verify` checks each"))
}

fn author_key() -> Check {
    const NAME: &str = "author's key";
    let path = match author_key::path() {
        Ok(path) => path,
        Err(error) => return Check::of(NAME, false, Err(error)),
    };
    if path.symlink_metadata().is_err() {
        return Check::good(NAME, "none yet; `cofferdam new` makes it");
    }
    Check::of(NAME, true, key::read(&path).map(|key| format!("{}, in {}", key.public(), files::shown(&path))))
}
