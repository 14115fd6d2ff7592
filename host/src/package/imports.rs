//! A component's imports against its manifest and against what this host has.

use semver::Version;

use super::error::{PackageError, printable};

/// Interfaces that carry no authority here: what every language's standard library links, with nothing
/// behind it (no arguments, no environment, no files), time, randomness, and the contract's own.
const PLUMBING: &[&str] = &[
    "cofferdam:connector/call",
    "cofferdam:connector/log",
    "cofferdam:connector/types",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
];

/// What a manifest must name, each with the interfaces that come with it.
const GRANTABLE: &[(&str, &[&str])] = &[("wasi:http/outgoing-handler", &["wasi:http/types"]), SOCKETS];

/// Naming these grants nothing: some toolchains link them into every component, so they are there to link
/// against, and each use is denied.
const SOCKETS: (&str, &[&str]) = (
    "wasi:sockets/network",
    &[
        "wasi:sockets/instance-network",
        "wasi:sockets/ip-name-lookup",
        "wasi:sockets/tcp",
        "wasi:sockets/tcp-create-socket",
        "wasi:sockets/udp",
        "wasi:sockets/udp-create-socket",
    ],
);

/// One import of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    name: String,
    interface: String,
    version: Option<Version>,
    instance: bool,
}

impl Import {
    pub(super) fn new(name: &str, instance: bool) -> Self {
        let (interface, version) = split(name);
        Self { name: printable(name), interface: printable(interface), version, instance }
    }

    /// As the component has it: `wasi:io/streams@0.2.6`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Without its version: `wasi:io/streams`.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Its version, if it has one.
    #[must_use]
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Whether this host has it at all, in this version: of WASI any 0.2, of the contract any 0.1
    /// (another version of that is an error of its own, found when the component is decoded).
    fn available(&self) -> bool {
        let Some(version) = self.version.as_ref().filter(|_| self.instance) else { return false };
        let minor = if self.interface.starts_with("wasi:") { 2 } else { 1 };
        (version.major, version.minor) == (0, minor) && version.pre.is_empty()
    }
}

/// How an import stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Harmless, and implied: every component may import it.
    Plumbing,
    /// A capability that the manifest names.
    Declared,
    /// Named by the manifest, and there to link against alone: every use is denied.
    Shut,
    /// A capability that the manifest would have to name.
    Undeclared,
    /// This host has no such thing.
    Unavailable,
}

impl Standing {
    /// The stable word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plumbing => "plumbing",
            Self::Declared => "declared",
            Self::Shut => "shut",
            Self::Undeclared => "undeclared",
            Self::Unavailable => "unavailable",
        }
    }
}

/// An import and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportVerdict {
    name: String,
    interface: String,
    standing: Standing,
}

impl ImportVerdict {
    /// The import, with its version.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a manifest names to declare it: the import without its version.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }
}

/// How each of `imports` stands where the manifest names `declared`.
#[must_use]
pub fn verdicts(imports: &[Import], declared: &[String]) -> Vec<ImportVerdict> {
    let verdict = |import: &Import| ImportVerdict {
        name: import.name.clone(),
        interface: import.interface.clone(),
        standing: standing(import, declared),
    };
    imports.iter().map(verdict).collect()
}

/// Refuses a component with an import that is neither plumbing nor declared.
pub(super) fn check(imports: &[Import], declared: &[String]) -> Result<(), PackageError> {
    let verdicts = verdicts(imports, declared);
    let these = |standing: Standing, text: fn(&ImportVerdict) -> &str| -> Vec<String> {
        verdicts.iter().filter(|verdict| verdict.standing == standing).map(|v| text(v).to_owned()).collect()
    };
    let undeclared = these(Standing::Undeclared, ImportVerdict::interface);
    let unavailable = these(Standing::Unavailable, ImportVerdict::name);
    if undeclared.is_empty() && unavailable.is_empty() {
        return Ok(());
    }
    Err(PackageError::Imports { undeclared, unavailable })
}

fn standing(import: &Import, declared: &[String]) -> Standing {
    if !import.available() {
        return Standing::Unavailable;
    }
    if PLUMBING.contains(&import.interface.as_str()) {
        return Standing::Plumbing;
    }
    let grant = GRANTABLE
        .iter()
        .find(|(name, with)| *name == import.interface || with.contains(&import.interface.as_str()));
    match grant {
        None => Standing::Unavailable,
        Some((name, _)) if !declared.iter().any(|line| names(line, import, name)) => Standing::Undeclared,
        Some((name, _)) if *name == SOCKETS.0 => Standing::Shut,
        Some(_) => Standing::Declared,
    }
}

/// Whether a manifest's line names the import, or `grant`, which it comes with. A line without a
/// version means every version that the host has; one with a version means that version's series.
fn names(line: &str, import: &Import, grant: &str) -> bool {
    let (interface, version) = split(line);
    let same_series = |asked: &Version| {
        import.version.as_ref().is_some_and(|has| (has.major, has.minor) == (asked.major, asked.minor))
    };
    (interface == import.interface || interface == grant) && version.as_ref().is_none_or(same_series)
}

fn split(name: &str) -> (&str, Option<Version>) {
    match name.split_once('@') {
        Some((interface, version)) => (interface, Version::parse(version).ok()),
        None => (name, None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn standing_of(name: &str, declared: &[&str]) -> Standing {
        let declared: Vec<String> = declared.iter().map(|line| (*line).to_owned()).collect();
        verdicts(&[Import::new(name, true)], &declared).remove(0).standing()
    }

    #[test]
    fn only_the_network_needs_naming_and_only_what_the_host_has_can_be_named() {
        let http = ["wasi:http/outgoing-handler"];
        let cases: &[(&str, &[&str], Standing)] = &[
            ("wasi:io/streams@0.2.6", &[], Standing::Plumbing),
            ("wasi:clocks/monotonic-clock@0.2.0", &["wasi:clocks/monotonic-clock"], Standing::Plumbing),
            ("cofferdam:connector/log@0.1.0", &[], Standing::Plumbing),
            ("wasi:http/outgoing-handler@0.2.4", &[], Standing::Undeclared),
            ("wasi:http/types@0.2.4", &[], Standing::Undeclared),
            ("wasi:http/outgoing-handler@0.2.4", &http, Standing::Declared),
            ("wasi:http/types@0.2.4", &http, Standing::Declared),
            ("wasi:http/types@0.2.4", &["wasi:http/types"], Standing::Declared),
            ("wasi:http/outgoing-handler@0.2.4", &["wasi:http/types"], Standing::Undeclared),
            ("wasi:http/outgoing-handler@0.2.4", &["wasi:http/outgoing-handler@0.2.0"], Standing::Declared),
            ("wasi:http/outgoing-handler@0.2.4", &["wasi:http/outgoing-handler@0.3.0"], Standing::Undeclared),
            ("wasi:http/outgoing-handler@0.3.0", &http, Standing::Unavailable),
            ("wasi:http/incoming-handler@0.2.4", &["wasi:http/incoming-handler"], Standing::Unavailable),
            ("wasi:sockets/tcp@0.2.0", &[], Standing::Undeclared),
            ("wasi:sockets/tcp@0.2.0", &http, Standing::Undeclared),
            ("wasi:sockets/tcp@0.2.0", &["wasi:sockets/network"], Standing::Shut),
            ("wasi:sockets/tcp@0.3.0", &["wasi:sockets/network"], Standing::Unavailable),
            ("wasi:io/streams", &[], Standing::Unavailable),
            ("wasi:io/streams@0.2.0-rc-2023-12-05", &[], Standing::Unavailable),
            ("wasi:io/streams-evil@0.2.0", &[], Standing::Unavailable),
            ("acme:secrets/read@1.0.0", &["acme:secrets/read"], Standing::Unavailable),
            ("print", &["print"], Standing::Unavailable),
        ];
        for (name, declared, expected) in cases {
            assert_eq!(standing_of(name, declared), *expected, "{name} with {declared:?}");
        }
    }

    #[test]
    fn an_import_that_is_no_instance_is_not_available_whatever_its_name() {
        let import = Import::new("wasi:io/streams@0.2.0", false);
        assert_eq!(verdicts(&[import], &[]).remove(0).standing(), Standing::Unavailable);
    }

    #[test]
    fn the_refusal_names_what_to_add_to_the_manifest() {
        let imports =
            [Import::new("wasi:http/outgoing-handler@0.2.4", true), Import::new("wasi:io/poll@0.2.4", true)];
        let error = check(&imports, &[]).unwrap_err();
        assert!(error.to_string().contains("wasi:http/outgoing-handler"), "{error}");
        assert!(!error.to_string().contains("poll"), "{error}");
        assert!(error.fix().contains("imports = [\"wasi:http/outgoing-handler\"]"), "{}", error.fix());
    }
}
