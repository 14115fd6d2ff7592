//! A component's imports against its manifest and against what this host has.

use cofferdam_core::failure::{Denial, DenialBoundary, DenialCode, GrantLine, Permit};
use semver::Version;
use serde::{Deserialize, Serialize};

use super::error::printable;

/// Interfaces that carry no authority here: what every language's standard library links, with nothing
/// behind it (no arguments, no environment, no files), time, randomness, and the contract's own.
const PLUMBING: &[&str] = &[
    "cofferdam:connector/call",
    "cofferdam:connector/credential",
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

/// What there is to say of a socket, named or not.
const SHUT: &str = "Sockets are there to link against alone, and every use is denied: use HTTP.";

/// One import of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

    /// An import that somebody asks about: an interface, in the version that the host has where none is named.
    #[must_use]
    pub fn asked(name: &str) -> Self {
        let mut import = Self::new(name, true);
        if !name.contains('@') {
            import.version = Some(Version::new(0, import.minor(), 0));
        }
        import
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
        (version.major, version.minor) == (0, self.minor()) && version.pre.is_empty()
    }

    /// What there is not: the interface, or this version of one that there is.
    fn missing(&self) -> &str {
        let known = PLUMBING.contains(&self.interface.as_str()) || grant_of(self).is_some();
        if known { &self.name } else { &self.interface }
    }

    /// The minor version that this host has.
    fn minor(&self) -> u64 {
        if self.interface.starts_with("wasi:") { 2 } else { 1 }
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

/// Refuses imports that are neither plumbing nor declared, all of them in one denial.
pub(super) fn check(imports: &[Import], declared: &[String]) -> Result<(), Denial> {
    let these = |wanted: Standing| -> Vec<&Import> {
        imports.iter().filter(|import| standing(import, declared) == wanted).collect()
    };
    let (unavailable, undeclared) = (these(Standing::Unavailable), these(Standing::Undeclared));
    if undeclared.is_empty() && unavailable.is_empty() {
        return Ok(());
    }
    // What only comes with another undeclared import is granted with it, and is nobody's to name.
    let comes_along = |import: &&&Import| {
        let with = |grant: &str, with: &[&str]| {
            with.contains(&import.interface.as_str())
                && undeclared.iter().any(|other| other.interface == grant)
        };
        GRANTABLE.iter().any(|(grant, others)| with(grant, others))
    };
    let undeclared: Vec<_> = undeclared.iter().filter(|import| !comes_along(import)).collect();
    let requested = unavailable.iter().map(|import| import.missing());
    let requested = requested.chain(undeclared.iter().map(|import| import.interface()));
    let requested: Vec<_> = requested.map(|name| format!("import:{name}")).collect();
    let granted = declared.iter().map(|line| format!("import:{line}")).collect();
    let (boundary, code) = (DenialBoundary::ConnectorManifest, DenialCode::CapabilityUnavailable);
    let denial = Denial::new(boundary, code, &requested.join(", "), granted);
    if unavailable.is_empty() {
        let missing = undeclared.iter().map(|import| import.interface.as_str());
        let imports = declared.iter().map(String::as_str).chain(missing);
        let sockets = undeclared.iter().any(|import| grant_of(import) == Some(SOCKETS.0));
        let denial = if sockets { denial.because(SHUT) } else { denial };
        return Err(denial.allowed_by(GrantLine::manifest_imports(imports)));
    }
    let names: Vec<_> = unavailable.iter().map(|import| import.missing()).collect();
    Err(denial.otherwise(format!("No host has {}: build the connector without.", names.join(", "))))
}

/// Whether a connector whose manifest names `declared` may import it, and which line says so.
///
/// # Errors
/// As an install of a connector with this one import; for what is there to link against alone, as its use.
pub fn foretell(import: &Import, declared: &[String]) -> Result<Permit, Denial> {
    if import.available() && grant_of(import) == Some(SOCKETS.0) {
        return Err(shut(import.interface()));
    }
    check(std::slice::from_ref(import), declared)?;
    let permit = Permit::new(&format!("import:{}", import.interface));
    Ok(match standing(import, declared) {
        Standing::Plumbing => permit.note("Every connector may import it: no authority comes with it."),
        _ => permit.by(GrantLine::manifest_imports(declared)),
    })
}

/// The denial of a use of an interface that is there to link against alone: no line would allow it.
pub fn shut(interface: &str) -> Denial {
    let (boundary, code) = (DenialBoundary::Sandbox, DenialCode::CapabilityUnavailable);
    Denial::new(boundary, code, &format!("import:{interface}"), Vec::new())
        .otherwise("No host has sockets: use HTTP (wasi:http/outgoing-handler) instead.")
}

/// What the manifest names and the component does not import: it asks for more than it needs.
pub(super) fn unused<'d>(imports: &[Import], declared: &'d [String]) -> Vec<&'d str> {
    let used = |line: &str| {
        let grant = |import: &Import| {
            let with = GRANTABLE.iter().find(|(_, with)| with.contains(&import.interface.as_str()));
            with.map_or("", |(grant, _)| *grant).to_owned()
        };
        imports.iter().any(|import| names(line, import, &grant(import)))
    };
    declared.iter().map(String::as_str).filter(|line| !used(line)).collect()
}

fn standing(import: &Import, declared: &[String]) -> Standing {
    if !import.available() {
        return Standing::Unavailable;
    }
    if PLUMBING.contains(&import.interface.as_str()) {
        return Standing::Plumbing;
    }
    match grant_of(import) {
        None => Standing::Unavailable,
        Some(name) if !declared.iter().any(|line| names(line, import, name)) => Standing::Undeclared,
        Some(name) if name == SOCKETS.0 => Standing::Shut,
        Some(_) => Standing::Declared,
    }
}

/// What a manifest has to name for the import: itself, or what it comes along with.
fn grant_of(import: &Import) -> Option<&'static str> {
    let covers = |(name, with): &&(&str, &[&str])| {
        *name == import.interface || with.contains(&import.interface.as_str())
    };
    GRANTABLE.iter().find(covers).map(|(name, _)| *name)
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

    fn imports(names: &[&str]) -> Vec<Import> {
        names.iter().map(|name| Import::new(name, true)).collect()
    }

    #[test]
    fn the_refusal_names_what_to_add_to_the_manifest_and_nothing_that_comes_along() {
        let names = ["wasi:http/types@0.2.4", "wasi:http/outgoing-handler@0.2.4", "wasi:io/poll@0.2.4"];
        let declared = ["wasi:clocks/wall-clock".to_owned()];
        let denial = check(&imports(&names), &declared).unwrap_err();
        assert_eq!(denial.requested(), "import:wasi:http/outgoing-handler");
        assert_eq!(
            denial.line().unwrap().line(),
            "imports = [\"wasi:clocks/wall-clock\", \"wasi:http/outgoing-handler\"]"
        );
        assert!(denial.line().unwrap().line().parse::<toml::Table>().is_ok());
        let alone = check(&imports(&names[..1]), &[]).unwrap_err();
        assert_eq!(alone.line().unwrap().line(), "imports = [\"wasi:http/types\"]");
        let denial = check(&imports(&["wasi:keyvalue/store@0.2.0", names[1]]), &[]).unwrap_err();
        assert_eq!(denial.requested(), "import:wasi:keyvalue/store, import:wasi:http/outgoing-handler");
        assert!(denial.line().is_none(), "no line is enough: {denial}");
        let denial = check(&imports(&["wasi:sockets/tcp@0.2.0"]), &[]).unwrap_err();
        assert!(denial.to_string().contains(SHUT), "{denial}");
        let sockets = ["wasi:sockets/network".to_owned()];
        let foretold = foretell(&Import::asked("wasi:sockets/tcp"), &sockets).unwrap_err();
        assert_eq!(foretold, shut("wasi:sockets/tcp"));
        let denial = check(&imports(&["wasi:http/outgoing-handler@0.3.0"]), &[]).unwrap_err();
        assert_eq!(
            denial.requested(),
            "import:wasi:http/outgoing-handler@0.3.0",
            "the version is what is missing"
        );
    }

    #[test]
    fn what_is_foretold_of_one_import_is_what_an_install_says() {
        let http = ["wasi:http/outgoing-handler".to_owned()];
        let asked = Import::asked("wasi:http/outgoing-handler");
        assert_eq!(foretell(&asked, &http).unwrap().granted_by().len(), 1);
        assert_eq!(foretell(&Import::asked("wasi:http/types"), &http).unwrap().granted_by().len(), 1);
        let install = check(&imports(&["wasi:http/outgoing-handler@0.2.4"]), &[]).unwrap_err();
        assert_eq!(foretell(&asked, &[]).unwrap_err(), install);
        assert!(foretell(&Import::asked("wasi:io/poll"), &[]).unwrap().granted_by().is_empty());
        assert!(foretell(&Import::asked("cofferdam:connector/log"), &[]).is_ok());
        for none in
            ["wasi:sockets/tcp", "wasi:http/outgoing-handler@0.3.0", "wasi:io/poll@0.2.0-rc-1", "print"]
        {
            assert!(foretell(&Import::asked(none), &http).is_err(), "{none}");
        }
    }

    #[test]
    fn what_is_declared_and_not_imported_is_noticed() {
        let declared = ["wasi:http/outgoing-handler", "wasi:random/random", "wasi:clocks/wall-clock@0.3.0"]
            .map(String::from);
        let used = ["wasi:http/types@0.2.4", "wasi:random/random@0.2.4", "wasi:clocks/wall-clock@0.2.4"];
        assert_eq!(unused(&imports(&used), &declared), ["wasi:clocks/wall-clock@0.3.0"]);
        assert_eq!(unused(&[], &declared).len(), 3);
    }
}
