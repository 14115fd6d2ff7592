//! `config.toml` of a home directory: what the operator lets every call of this host do.

use std::path::{Path, PathBuf};

use super::files;
use crate::document::{Refused, read};
use crate::egress::Roots;
use crate::error::HostError;
use crate::host::CODE_CACHE_BYTES;
use crate::limits::LimitRequest;
use crate::resilience;

/// The file's name in the home directory.
pub(super) const FILE: &str = "config.toml";

/// What the file says. Without one, nothing is configured.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Settings {
    /// `host:port`s that connectors may reach although their address is inside the operator's network.
    pub(super) allow_private: Vec<String>,
    /// Whose certificate authorities are trusted.
    pub(super) roots: Roots,
    /// PEM files with certificate authorities to trust beside those.
    pub(super) extra_roots: Vec<PathBuf>,
    /// The most compiled code that is kept, in bytes, where it is not the host's default.
    pub(super) cache_size: Option<u64>,
    /// The file that the vault is locked with, where it is not the one beside it.
    pub(super) vault_key_file: Option<PathBuf>,
    /// What is done about failures.
    pub(super) resilience: resilience::Settings,
}

impl Settings {
    /// Reads the file in `home`, if there is one.
    pub(super) fn load(home: &Path) -> Result<Self, HostError> {
        let path = home.join(FILE);
        match files::read_if_there("The configuration", &path)? {
            None => Ok(Self::default()),
            Some(_) => {
                let text = files::read_text("The configuration", &path)?;
                Self::parse(&files::shown(&path), home, &text)
            }
        }
    }

    fn parse(label: &str, home: &Path, text: &str) -> Result<Self, HostError> {
        let parsed = read(label, text, |root| {
            let own = ["network", "compile", "vault"];
            root.only(&[&own[..], &resilience::Settings::BLOCKS].concat());
            let mut settings = Self { resilience: resilience::Settings::read(root), ..Self::default() };
            if let Some(network) = root.table("network") {
                network.only(&["allow_private", "roots", "extra_roots"]);
                for entry in network.texts("allow_private") {
                    settings.allow_private.extend(entry.parse(|text| host_port(text)));
                }
                let whose = network.text("roots").and_then(|roots| roots.parse(|text| whose_roots(text)));
                settings.roots = whose.unwrap_or_default();
                // Relative to the home directory: the file means the same wherever it is read from.
                let roots = network.texts("extra_roots");
                settings.extra_roots.extend(roots.iter().map(|root| home.join(root.value)));
            }
            if let Some(compile) = root.table("compile") {
                compile.only(&["cache_size"]);
                settings.cache_size = compile.text("cache_size").and_then(|size| size.parse(|it| bytes(it)));
            }
            if let Some(vault) = root.table("vault") {
                vault.only(&["key_file"]);
                settings.vault_key_file = vault.text("key_file").map(|path| home.join(path.value));
            }
            Some(settings)
        });
        parsed.map_err(files::document_error)
    }
}

/// Refuses what the host would refuse later, with its place in the file.
fn host_port(text: &str) -> Result<String, Refused> {
    match crate::egress::HostPort::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(Refused::new(error.to_string(), "write it like \"localhost:8080\"")),
    }
}

/// Whose certificate authorities, in the file's words.
fn whose_roots(text: &str) -> Result<Roots, Refused> {
    match text {
        "platform" => Ok(Roots::Platform),
        "bundled" => Ok(Roots::Bundled),
        _ => Err(Refused::new(
            "not a set of certificate authorities".to_owned(),
            "write \"platform\" (this machine's) or \"bundled\" (Mozilla's, in this program)",
        )),
    }
}

/// An amount of bytes that a cache may have.
fn bytes(text: &str) -> Result<u64, Refused> {
    let amount = LimitRequest::parse(None, None, Some(text)).ok().and_then(|amount| amount.memory());
    let fits = amount.filter(|bytes| CODE_CACHE_BYTES.contains(bytes));
    fits.ok_or_else(|| Refused::new("not a size from 1MiB to 1024GiB".to_owned(), "write it like \"512MiB\""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use std::path::Path;

    use super::Settings;
    use crate::egress::Roots;

    fn parse(text: &str) -> Result<Settings, crate::error::HostError> {
        Settings::parse("config.toml", Path::new("/home"), text)
    }

    #[test]
    fn paths_are_relative_to_the_home_directory() {
        let settings = parse(
            "[network]\nallow_private = [\"localhost:8080\"]\nextra_roots = [\"ca.pem\", \"/etc/ca.pem\"]\n",
        )
        .unwrap();
        assert_eq!(settings.allow_private, ["localhost:8080"]);
        assert_eq!(settings.extra_roots, [Path::new("/home/ca.pem"), Path::new("/etc/ca.pem")]);
        let vault = parse("[vault]\nkey_file = \"keys/vault.key\"").unwrap();
        assert_eq!(vault.vault_key_file.as_deref(), Some(Path::new("/home/keys/vault.key")));
        assert_eq!(parse("").unwrap(), Settings::default());
        for (text, roots) in [("platform", Roots::Platform), ("bundled", Roots::Bundled)] {
            assert_eq!(parse(&format!("[network]\nroots = \"{text}\"")).unwrap().roots, roots);
        }
        assert_eq!(parse("[compile]\ncache_size = \"512MiB\"").unwrap().cache_size, Some(512 << 20));
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_place() {
        for (text, place) in [
            ("[network]\nallow_privat = []", "config.toml:2:1"),
            ("[networks]", "config.toml:1:2"),
            ("[network]\nallow_private = [\"localhost\"]", "config.toml:2:18"),
            ("[network]\nextra_roots = \"ca.pem\"", "config.toml:2:15"),
            ("[network]\nroots = \"mozilla\"", "config.toml:2:9"),
            ("[network]\nroots = []", "config.toml:2:9"),
            ("[compile]\ncache_size = 512", "config.toml:2:14"),
            ("[compile]\ncache_size = \"512\"", "config.toml:2:14"),
            ("[compile]\ncache_size = \"1KiB\"", "config.toml:2:14"),
            ("[vault]\nkeyfile = \"x\"", "config.toml:2:1"),
            ("[retry]\nprofile = \"patien\"", "config.toml:2:11"),
            ("network = ", "config.toml:1"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message().contains(place), "{text}: {error}");
        }
    }
}
