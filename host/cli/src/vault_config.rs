//! `[vault]` of `config.toml`: where the secrets of bindings are kept.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::document::{DocumentTable, InvalidValue, SpannedItem};
use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::limits::parse_time;
use cofferdam_egress::vault::{
    ExternalVault, SecretCommand, SecretCommandSettings, SecretDirectory, SecretVariables, Vault, VaultFile,
};

use super::config_file;

/// The file of the bindings in the home directory, unless another is named.
const BINDINGS: &str = "bindings.toml";

/// The directory that systemd puts credentials in.
const CREDENTIALS_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
const COMMAND_CACHE: Duration = Duration::from_secs(60);

/// The longest first line of a script, in bytes, that the kernel reads.
const FIRST_LINE_BYTES: u64 = 256;

/// The place where the secrets of bindings are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VaultConfig {
    /// A sealed file in the home directory.
    File {
        /// The key file, unless it is the one next to the vault.
        key_file: Option<PathBuf>,
    },
    /// A directory of files.
    Directory {
        bindings: PathBuf,
        /// The directory; that of systemd's credentials if none is named.
        directory: Option<PathBuf>,
    },
    /// A command that returns them.
    Command {
        bindings: PathBuf,
        program: PathBuf,
        arguments: Vec<String>,
        /// The variables that the command gets.
        environment: Vec<String>,
        timeout: Duration,
        cache: Duration,
        store: bool,
        /// The files and directories that the command may read and run in a confined server.
        reach: Vec<PathBuf>,
    },
    /// Environment variables.
    Environment { bindings: PathBuf },
}

impl Default for VaultConfig {
    fn default() -> Self {
        Self::File { key_file: None }
    }
}

impl VaultConfig {
    /// Reads the table. Relative paths are relative to `home`.
    pub(super) fn read(table: &DocumentTable<'_>, home: &Path) -> Option<Self> {
        let path = |key| table.text(key).map(|path| home.join(path.value));
        let bindings = || path("bindings").unwrap_or_else(|| home.join(BINDINGS));
        match table.text("kind").map_or(Some("file"), |kind| kind.parse(|kind| known_kind(kind)))? {
            "directory" => {
                table.reject_unknown_keys(&["kind", "bindings", "directory"]);
                Some(Self::Directory { bindings: bindings(), directory: path("directory") })
            }
            "command" => {
                table.reject_unknown_keys(&[
                    "kind",
                    "bindings",
                    "command",
                    "environment",
                    "timeout",
                    "cache",
                    "store",
                    "reach",
                ]);
                let words = table.texts("command");
                let Some((program, arguments)) = words.split_first() else {
                    table.missing("command", "command = [\"/usr/local/bin/get-secret\"]");
                    return None;
                };
                let program = program.parse(|program| absolute(program))?;
                let time = |key, range: [Duration; 2]| {
                    table.text(key).map(|text| text.parse(|text| time(text, range)))
                };
                let second = Duration::from_secs(1);
                let timeout = time("timeout", [second / 10, second * 60]).unwrap_or(Some(COMMAND_TIMEOUT))?;
                let cache = time("cache", [second, second * 86_400]).unwrap_or(Some(COMMAND_CACHE))?;
                let owned = |text: &SpannedItem<'_, &str>| text.value.to_owned();
                Some(Self::Command {
                    bindings: bindings(),
                    program,
                    arguments: arguments.iter().map(owned).collect(),
                    environment: table.texts("environment").iter().map(owned).collect(),
                    timeout,
                    cache,
                    store: table.flag("store").unwrap_or(false),
                    reach: table
                        .texts("reach")
                        .iter()
                        .filter_map(|path| path.parse(|path| absolute(path)))
                        .collect(),
                })
            }
            "environment" => {
                table.reject_unknown_keys(&["kind", "bindings"]);
                Some(Self::Environment { bindings: bindings() })
            }
            _ => {
                table.reject_unknown_keys(&["kind", "key_file"]);
                Some(Self::File { key_file: path("key_file") })
            }
        }
    }

    /// Returns the files and directories that a confined server reads for it.
    pub(super) fn readable(&self) -> Vec<PathBuf> {
        match self {
            Self::File { key_file } => key_file.iter().cloned().collect(),
            Self::Directory { bindings, directory } => {
                let directory = directory.clone().or_else(credentials_directory);
                directory.into_iter().chain([file_in_its_directory(bindings)]).collect()
            }
            Self::Command { bindings, .. } | Self::Environment { bindings } => {
                vec![file_in_its_directory(bindings)]
            }
        }
    }

    /// Returns the programs that a confined server runs for it, with what they read.
    pub(super) fn runnable(&self) -> Vec<PathBuf> {
        match self {
            Self::Command { program, reach, .. } => {
                let interpreter = interpreter(program);
                reach.iter().cloned().chain([program.clone()]).chain(interpreter).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Creates the vault, without reading secrets. `file` makes the sealed file.
    pub(super) fn open(
        &self,
        file: impl FnOnce(Option<PathBuf>) -> Result<VaultFile, HostError>,
    ) -> Result<HomeVault, HostError> {
        Ok(match self.clone() {
            Self::File { key_file } => HomeVault::File(Arc::new(file(key_file)?)),
            Self::Directory { bindings, directory } => {
                let directory = directory.or_else(credentials_directory).ok_or_else(|| {
                    let message = format!("The vault's directory is named neither in {} nor by systemd.", config_file::FILE);
                    HostError::new(HostErrorKind::Configuration, message).with_hint(
                        "Write `directory = \"/run/secrets\"` under [vault], or start the service with LoadCredential=.",
                    )
                })?;
                HomeVault::external(ExternalVault::directory(bindings, SecretDirectory::new(directory)))
            }
            Self::Command { bindings, program, arguments, environment, timeout, cache, store, reach: _ } => {
                let settings = SecretCommandSettings {
                    program,
                    arguments: arguments.into_iter().map(OsString::from).collect(),
                    environment: environment
                        .into_iter()
                        .filter_map(|name| Some((OsString::from(&name), std::env::var_os(&name)?)))
                        .collect(),
                    timeout,
                    cache,
                    stores: store,
                };
                HomeVault::external(ExternalVault::command(bindings, SecretCommand::new(settings)))
            }
            Self::Environment { bindings } => {
                let variables = SecretVariables::new(Box::new(|name| std::env::var_os(name)));
                HomeVault::external(ExternalVault::environment(bindings, variables))
            }
        })
    }
}

/// The vault of a home.
#[derive(Clone)]
pub(super) enum HomeVault {
    /// The sealed file.
    File(Arc<VaultFile>),
    /// Secrets elsewhere.
    External(Arc<ExternalVault>),
}

impl HomeVault {
    fn external(vault: ExternalVault) -> Self {
        Self::External(Arc::new(vault))
    }

    /// Returns the vault for a host.
    pub(super) fn shared(&self) -> Arc<dyn Vault> {
        match self {
            Self::File(vault) => Arc::<VaultFile>::clone(vault),
            Self::External(vault) => Arc::<ExternalVault>::clone(vault),
        }
    }

    /// Returns the sealed file.
    ///
    /// # Errors
    /// The secrets are kept elsewhere; the error says where they are changed.
    pub(super) fn file(&self) -> Result<&VaultFile, HostError> {
        match self {
            Self::File(vault) => Ok(vault),
            Self::External(vault) => Err(match vault.check_editable() {
                Err(error) => error.into(),
                Ok(()) => HostError::new(HostErrorKind::Validation, "There is no vault file."),
            }),
        }
    }
}

impl fmt::Debug for HomeVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomeVault").finish_non_exhaustive()
    }
}

fn credentials_directory() -> Option<PathBuf> {
    std::env::var_os(CREDENTIALS_DIRECTORY).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns what must be readable so that a file is found again after it was replaced: its directory. A rule for the file
/// itself would be for the file that is there now.
fn file_in_its_directory(path: &Path) -> PathBuf {
    path.parent().filter(|parent| *parent != Path::new("/")).unwrap_or(path).to_owned()
}

/// Returns the interpreter that a script names in its first line.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let file = BufReader::new(File::open(program).ok()?);
    file.take(FIRST_LINE_BYTES).read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8(line).ok()?;
    let path = line.strip_prefix("#!")?.split_whitespace().next()?.to_owned();
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

fn known_kind(text: &str) -> Result<&'static str, InvalidValue> {
    ["file", "directory", "command", "environment"].into_iter().find(|kind| *kind == text).ok_or_else(|| {
        InvalidValue::new(
            "not a kind of vault",
            "write \"file\" (a sealed file in the home directory), \"directory\" (a file for each secret), \
             \"command\" or \"environment\"",
        )
    })
}

fn absolute(text: &str) -> Result<PathBuf, InvalidValue> {
    let path = PathBuf::from(text);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(InvalidValue::new(
            "not an absolute path",
            "no shell and no PATH is used: write it like \"/usr/local/bin/get-secret\"",
        )),
    }
}

fn time(text: &str, [shortest, longest]: [Duration; 2]) -> Result<Duration, InvalidValue> {
    let fits = parse_time(text).filter(|time| (shortest..=longest).contains(time));
    fits.ok_or_else(|| {
        let message = format!("not a time from {} s to {} s", shortest.as_secs_f32(), longest.as_secs_f32());
        InvalidValue::new(message, "write it like \"10s\" or \"5m\"")
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::PermissionsExt as _;

    use cofferdam_core::document::{DocumentError, read};

    use super::*;

    fn parse(text: &str) -> Result<VaultConfig, DocumentError> {
        read("config.toml", text, |root| VaultConfig::read(&root.table("vault")?, Path::new("/home")))
    }

    #[test]
    fn each_kind_has_its_keys() {
        assert_eq!(
            parse("[vault]\nkind = \"directory\"\ndirectory = \"/run/secrets\"").unwrap(),
            VaultConfig::Directory {
                bindings: "/home/bindings.toml".into(),
                directory: Some("/run/secrets".into())
            }
        );
        assert_eq!(
            parse("[vault]\nkind = \"environment\"\nbindings = \"/etc/b.toml\"").unwrap(),
            VaultConfig::Environment { bindings: "/etc/b.toml".into() }
        );
        let command = "[vault]\nkind = \"command\"\ncommand = [\"/bin/get\", \"-x\"]\nenvironment = [\"HOME\"]\n\
                       timeout = \"2s\"\ncache = \"5m\"\nstore = true\nreach = [\"/usr/bin\"]";
        let VaultConfig::Command { program, arguments, cache, store, .. } = parse(command).unwrap() else {
            unreachable!()
        };
        assert_eq!((program.to_str(), &*arguments), (Some("/bin/get"), &["-x".to_owned()][..]));
        assert_eq!((cache, store), (Duration::from_secs(300), true));
        for (text, place) in [
            ("kind = \"files\"", "config.toml:2:8"),
            ("kind = \"directory\"\nkey_file = \"k\"", "config.toml:3:1"),
            ("kind = \"file\"\ndirectory = \"d\"", "config.toml:3:1"),
            ("kind = \"environment\"\ncommand = [\"/bin/get\"]", "config.toml:3:1"),
            ("kind = \"command\"", "vault.command"),
            ("kind = \"command\"\ncommand = []", "vault.command"),
            ("kind = \"command\"\ncommand = [\"get\"]", "config.toml:3:12"),
            ("kind = \"command\"\ncommand = [\"/bin/get\"]\ntimeout = \"0s\"", "config.toml:4:11"),
            ("kind = \"command\"\ncommand = [\"/bin/get\"]\ncache = \"0s\"", "config.toml:4:9"),
            ("kind = \"command\"\ncommand = [\"/bin/get\"]\nreach = [\"bin\"]", "config.toml:4:10"),
        ] {
            let error = parse(&format!("[vault]\n{text}")).unwrap_err().to_string();
            assert!(error.contains(place), "{text}: {error}");
        }
    }

    #[test]
    fn the_interpreter_of_a_script_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("get");
        std::fs::write(&script, "#! /usr/bin/env python3\nprint()\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(interpreter(&script), Some("/usr/bin/env".into()));
        std::fs::write(&script, "\u{7f}ELF").unwrap();
        assert_eq!(interpreter(&script), None);
    }
}
