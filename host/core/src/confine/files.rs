//! Landlock: the files and directories that a confined process can open.

use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

use super::{ProcessRole, ProtectionLevel, ServerFiles};

/// The newest Landlock ABI that the rules are written for (Linux 6.12: scopes of signals and sockets). Older
/// kernels enforce the part that they know.
const INTERFACE: ABI = ABI::V6;

/// Directories that the dynamic loader and the C library read: the compile worker's libraries, and the
/// resolver's modules, which are loaded at the first name lookup.
const LIBRARIES: [&str; 7] =
    ["/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib"];

/// Package stores of distributions that have libraries nowhere else.
const STORES: [&str; 2] = ["/nix/store", "/gnu/store"];

/// The system files that name lookup, certificates, clocks and the allocator read.
const SYSTEM: [&str; 23] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    // Local authorities of Debian, which `/etc/ssl/certs` links to. Those of Fedora are below `/etc/pki`.
    "/usr/local/share/ca-certificates",
    "/usr/share/pki",
    "/dev/urandom",
    "/proc/self",
    "/proc/sys/vm",
    "/sys/devices/system/cpu",
];

/// Devices that are read and written: the terminal for passphrase prompts, and the sink of child processes.
const DEVICES: [&str; 2] = ["/dev/tty", "/dev/null"];

/// Restricts the calling thread, and all threads and processes that it starts, to the files of `role`.
pub(super) fn restrict(role: &ProcessRole) -> Result<ProtectionLevel, RulesetError> {
    let all = AccessFs::from_all(INTERFACE);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?;
    if let ProcessRole::Server(files) = role {
        rules = server(rules, files)?;
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => ProtectionLevel::Holds,
        RulesetStatus::PartiallyEnforced => ProtectionLevel::Partly,
        RulesetStatus::NotEnforced => ProtectionLevel::Missing,
    })
}

fn server(rules: RulesetCreated, files: &ServerFiles) -> Result<RulesetCreated, RulesetError> {
    let all = AccessFs::from_all(INTERFACE);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = read | AccessFs::Execute;
    let rules = allow(rules, [&files.home], all & !BitFlags::from(AccessFs::Execute))?;
    let rules = allow(rules, [&files.compiler], run)?;
    let rules = allow(rules, &files.runnable, run)?;
    // Running a program requires the right to run its loader, which is in a library directory.
    let rules = allow(rules, LIBRARIES.iter().chain(&STORES), run)?;
    let rules = allow(rules, SYSTEM, read)?;
    let rules = allow(rules, DEVICES, AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev)?;
    allow(rules, &files.configured, read)
}

/// Allows `access` to each path that exists, and to everything below it.
fn allow(
    mut rules: RulesetCreated,
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for path in paths {
        // A missing file cannot be opened, and needs no rule.
        let Ok(opened) = PathFd::new(path.as_ref()) else { continue };
        // The kernel rejects directory rights in a rule for a file.
        let fitting = if path.as_ref().is_dir() { access } else { access & AccessFs::from_file(INTERFACE) };
        rules = rules.add_rule(PathBeneath::new(opened, fitting))?;
    }
    Ok(rules)
}
