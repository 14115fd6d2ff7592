//! A component's imports, checked against its manifest and against the host's interfaces.

use std::sync::{Arc, LazyLock};

use cofferdam_core::failure::{Allowed, Denial, DenialBoundary, DenialCode, GrantLine};
use semver::Version;
use serde::{Deserialize, Serialize};

use super::error::{PackageError, printable};
use super::shape::{ShapeCase, ShapeField, ValueShape, WitName};

/// Interfaces that carry no authority here: the imports of every language's standard library, implemented as
/// empty (no arguments, no environment, no files), time, randomness, and the contract's own.
const AMBIENT: &[&str] = &[
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

/// The imports that a manifest must name, each with the interfaces that come with it.
const GRANTABLE: &[(&str, &[&str])] = &[("wasi:http/outgoing-handler", &["wasi:http/types"]), SOCKETS];

/// Naming these grants nothing: some toolchains link them into every component, so they are available to link
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

/// The note on a socket, named or not.
const SOCKETS_NOTE: &str = "Sockets are there to link against alone, and every use is denied: use HTTP.";

/// One import of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportDeclaration {
    name: String,
    interface: String,
    version: Option<Version>,
    instance: bool,
}

impl ImportDeclaration {
    pub(super) fn new(name: &str, instance: bool) -> Self {
        let (interface, version) = split(name);
        Self { name: printable(name), interface: printable(interface), version, instance }
    }

    /// Parses the import of a query: an interface, in the host's own version if none is named.
    #[must_use]
    pub fn from_query(name: &str) -> Self {
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

    /// Returns true if this host has it in this version: of WASI any 0.2, of the contract any 0.1 (another
    /// version of that is an error of its own, found when the component is decoded).
    fn available(&self) -> bool {
        let Some(version) = self.version.as_ref().filter(|_| self.instance) else { return false };
        (version.major, version.minor) == (0, self.minor()) && version.pre.is_empty()
    }

    /// Returns the missing item: the interface, or this version of an existing one.
    fn missing(&self) -> &str {
        let known = AMBIENT.contains(&self.interface.as_str()) || grant_of(self).is_some();
        if known { &self.name } else { &self.interface }
    }

    /// The minor version that this host has.
    fn minor(&self) -> u64 {
        if self.interface.starts_with("wasi:") { 2 } else { 1 }
    }
}

/// The status of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImportStatus {
    /// Harmless, and implied: every component may import it.
    Ambient,
    /// A capability that the manifest names.
    Declared,
    /// Named by the manifest, and available to link against alone: every use is denied.
    LinkOnly,
    /// A capability that the manifest would have to name.
    Undeclared,
    /// This host has no such thing.
    Unavailable,
}

impl ImportStatus {
    /// The stable word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ambient => "plumbing",
            Self::Declared => "declared",
            Self::LinkOnly => "shut",
            Self::Undeclared => "undeclared",
            Self::Unavailable => "unavailable",
        }
    }
}

/// An import and its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportVerdict {
    name: String,
    interface: String,
    status: ImportStatus,
}

impl ImportVerdict {
    /// The import, with its version.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name that declares it in a manifest: the import without its version.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns its status.
    #[must_use]
    pub fn status(&self) -> ImportStatus {
        self.status
    }
}

/// Returns the status of each of `imports` if the manifest names `declared`.
#[must_use]
pub fn verdicts(imports: &[ImportDeclaration], declared: &[String]) -> Vec<ImportVerdict> {
    let verdict = |import: &ImportDeclaration| ImportVerdict {
        name: import.name.clone(),
        interface: import.interface.clone(),
        status: import_status(import, declared),
    };
    imports.iter().map(verdict).collect()
}

/// Refuses imports that are neither ambient nor declared, all of them in one denial.
pub(super) fn check(imports: &[ImportDeclaration], declared: &[String]) -> Result<(), Denial> {
    let these = |wanted: ImportStatus| -> Vec<&ImportDeclaration> {
        imports.iter().filter(|import| import_status(import, declared) == wanted).collect()
    };
    let (unavailable, undeclared) = (these(ImportStatus::Unavailable), these(ImportStatus::Undeclared));
    if undeclared.is_empty() && unavailable.is_empty() {
        return Ok(());
    }
    // An import that comes with another undeclared one is granted with it, and cannot be named.
    let comes_along = |import: &&&ImportDeclaration| {
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
        let denial = if sockets { denial.with_remark(SOCKETS_NOTE) } else { denial };
        return Err(denial.allowed_by(GrantLine::manifest_imports(imports)));
    }
    let names: Vec<_> = unavailable.iter().map(|import| import.missing()).collect();
    Err(denial.with_alternative(format!("No host has {}: build the connector without.", names.join(", "))))
}

/// Checks that a connector whose manifest names `declared` may import it, and returns the line that allows
/// it.
///
/// # Errors
/// The error of an install of a connector with this one import; for an interface that is available to link
/// against alone, that of its use.
pub fn check_access(import: &ImportDeclaration, declared: &[String]) -> Result<Allowed, Denial> {
    if import.available() && grant_of(import) == Some(SOCKETS.0) {
        return Err(socket_denial(import.interface()));
    }
    check(std::slice::from_ref(import), declared)?;
    let permit = Allowed::new(&format!("import:{}", import.interface));
    Ok(match import_status(import, declared) {
        ImportStatus::Ambient => {
            permit.with_note("Every connector may import it: no authority comes with it.")
        }
        _ => permit.with_grant(GrantLine::manifest_imports(declared)),
    })
}

/// Returns the denial of a use of an interface that is available to link against alone: no line would allow
/// it.
pub fn socket_denial(interface: &str) -> Denial {
    let (boundary, code) = (DenialBoundary::Sandbox, DenialCode::CapabilityUnavailable);
    Denial::new(boundary, code, &format!("import:{interface}"), Vec::new())
        .with_alternative("No host has sockets: use HTTP (wasi:http/outgoing-handler) instead.")
}

/// Returns the interfaces that the manifest names and the component does not import: it requests more than it
/// needs.
pub(super) fn unused<'d>(imports: &[ImportDeclaration], declared: &'d [String]) -> Vec<&'d str> {
    let used = |line: &str| {
        let grant = |import: &ImportDeclaration| {
            let with = GRANTABLE.iter().find(|(_, with)| with.contains(&import.interface.as_str()));
            with.map_or("", |(grant, _)| *grant).to_owned()
        };
        imports.iter().any(|import| names(line, import, &grant(import)))
    };
    declared.iter().map(String::as_str).filter(|line| !used(line)).collect()
}

fn import_status(import: &ImportDeclaration, declared: &[String]) -> ImportStatus {
    if !import.available() {
        return ImportStatus::Unavailable;
    }
    if AMBIENT.contains(&import.interface.as_str()) {
        return ImportStatus::Ambient;
    }
    match grant_of(import) {
        None => ImportStatus::Unavailable,
        Some(name) if !declared.iter().any(|line| names(line, import, name)) => ImportStatus::Undeclared,
        Some(name) if name == SOCKETS.0 => ImportStatus::LinkOnly,
        Some(_) => ImportStatus::Declared,
    }
}

/// Returns the name that a manifest needs for the import: itself, or the import that it comes with.
fn grant_of(import: &ImportDeclaration) -> Option<&'static str> {
    let covers = |(name, with): &&(&str, &[&str])| {
        *name == import.interface || with.contains(&import.interface.as_str())
    };
    GRANTABLE.iter().find(covers).map(|(name, _)| *name)
}

/// Returns true if a manifest's line names the import, or `grant`, which it comes with. A line without a
/// version means every version that the host has; one with a version means that version's series.
fn names(line: &str, import: &ImportDeclaration, grant: &str) -> bool {
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

/// The version of the WIT package `cofferdam:connector` that this host supports. Components made for any
/// 0.1.x are accepted: within it the types are frozen and functions are only added.
pub const CONTRACT_VERSION: &str = "0.1.0";

const PACKAGE: &str = "cofferdam:connector/";

/// Refuses an import or export of the contract in a version that this host does not support.
pub(super) fn check_version(extern_name: &str) -> Result<(), PackageError> {
    if !extern_name.starts_with(PACKAGE) {
        return Ok(());
    }
    let version = extern_name.split_once('@').and_then(|(_, version)| Version::parse(version).ok());
    match version {
        Some(Version { major: 0, minor: 1, pre, .. }) if pre.is_empty() => Ok(()),
        _ => {
            Err(PackageError::ContractVersion { found: printable(extern_name), supported: CONTRACT_VERSION })
        }
    }
}

/// Returns true if `shape` is the contract's `failure`. Component types are compared by structure: an alias,
/// or another definition with the same cases, is the same type.
pub(super) fn is_failure(shape: &ValueShape) -> bool {
    shape == failure()
}

/// `cofferdam:connector/types.{failure}`.
pub fn failure() -> &'static ValueShape {
    static FAILURE: LazyLock<ValueShape> = LazyLock::new(make_failure);
    &FAILURE
}

fn make_failure() -> ValueShape {
    let text = || ValueShape::Option(Arc::new(ValueShape::String));
    let phases = ["dns", "connect", "tls", "send", "response"];
    let phase = ValueShape::Enum(phases.into_iter().map(WitName::from_wit).collect());
    variant([
        (
            "upstream",
            record([
                ("status", ValueShape::Unsigned(16)),
                ("code", text()),
                ("retry-after-ms", ValueShape::Option(Arc::new(ValueShape::Unsigned(64)))),
                ("detail", text()),
            ]),
        ),
        ("network", record([("phase", ValueShape::Option(Arc::new(phase))), ("detail", text())])),
        ("invalid-input", record([("field", text()), ("message", ValueShape::String), ("detail", text())])),
        (
            "failed",
            record([
                ("code", text()),
                ("message", ValueShape::String),
                ("transient", ValueShape::Bool),
                ("detail", text()),
            ]),
        ),
    ])
}

fn record<const N: usize>(fields: [(&str, ValueShape); N]) -> ValueShape {
    let field = |(name, shape)| ShapeField { name: WitName::from_wit(name), shape };
    ValueShape::Record(fields.into_iter().map(field).collect())
}

fn variant<const N: usize>(cases: [(&str, ValueShape); N]) -> ValueShape {
    let case = |(name, payload)| ShapeCase { name: WitName::from_wit(name), payload: Some(payload) };
    ValueShape::Variant(cases.into_iter().map(case).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn standing_of(name: &str, declared: &[&str]) -> ImportStatus {
        let declared: Vec<String> = declared.iter().map(|line| (*line).to_owned()).collect();
        verdicts(&[ImportDeclaration::new(name, true)], &declared).remove(0).status()
    }

    #[test]
    fn only_available_imports_can_be_declared() {
        let http = ["wasi:http/outgoing-handler"];
        let cases: &[(&str, &[&str], ImportStatus)] = &[
            ("wasi:io/streams@0.2.6", &[], ImportStatus::Ambient),
            ("wasi:clocks/monotonic-clock@0.2.0", &["wasi:clocks/monotonic-clock"], ImportStatus::Ambient),
            ("cofferdam:connector/log@0.1.0", &[], ImportStatus::Ambient),
            ("wasi:http/outgoing-handler@0.2.4", &[], ImportStatus::Undeclared),
            ("wasi:http/types@0.2.4", &[], ImportStatus::Undeclared),
            ("wasi:http/outgoing-handler@0.2.4", &http, ImportStatus::Declared),
            ("wasi:http/types@0.2.4", &http, ImportStatus::Declared),
            ("wasi:http/types@0.2.4", &["wasi:http/types"], ImportStatus::Declared),
            ("wasi:http/outgoing-handler@0.2.4", &["wasi:http/types"], ImportStatus::Undeclared),
            (
                "wasi:http/outgoing-handler@0.2.4",
                &["wasi:http/outgoing-handler@0.2.0"],
                ImportStatus::Declared,
            ),
            (
                "wasi:http/outgoing-handler@0.2.4",
                &["wasi:http/outgoing-handler@0.3.0"],
                ImportStatus::Undeclared,
            ),
            ("wasi:http/outgoing-handler@0.3.0", &http, ImportStatus::Unavailable),
            ("wasi:http/incoming-handler@0.2.4", &["wasi:http/incoming-handler"], ImportStatus::Unavailable),
            ("wasi:sockets/tcp@0.2.0", &[], ImportStatus::Undeclared),
            ("wasi:sockets/tcp@0.2.0", &http, ImportStatus::Undeclared),
            ("wasi:sockets/tcp@0.2.0", &["wasi:sockets/network"], ImportStatus::LinkOnly),
            ("wasi:sockets/tcp@0.3.0", &["wasi:sockets/network"], ImportStatus::Unavailable),
            ("wasi:io/streams", &[], ImportStatus::Unavailable),
            ("wasi:io/streams@0.2.0-rc-2023-12-05", &[], ImportStatus::Unavailable),
            ("wasi:io/streams-evil@0.2.0", &[], ImportStatus::Unavailable),
            ("acme:secrets/read@1.0.0", &["acme:secrets/read"], ImportStatus::Unavailable),
            ("print", &["print"], ImportStatus::Unavailable),
        ];
        for (name, declared, expected) in cases {
            assert_eq!(standing_of(name, declared), *expected, "{name} with {declared:?}");
        }
    }

    #[test]
    fn an_import_that_is_no_instance_is_unavailable() {
        let import = ImportDeclaration::new("wasi:io/streams@0.2.0", false);
        assert_eq!(verdicts(&[import], &[]).remove(0).status(), ImportStatus::Unavailable);
    }

    fn imports(names: &[&str]) -> Vec<ImportDeclaration> {
        names.iter().map(|name| ImportDeclaration::new(name, true)).collect()
    }

    #[test]
    fn the_refusal_names_the_missing_manifest_entries() {
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
        assert!(denial.to_string().contains(SOCKETS_NOTE), "{denial}");
        let sockets = ["wasi:sockets/network".to_owned()];
        let foretold =
            check_access(&ImportDeclaration::from_query("wasi:sockets/tcp"), &sockets).unwrap_err();
        assert_eq!(foretold, socket_denial("wasi:sockets/tcp"));
        let denial = check(&imports(&["wasi:http/outgoing-handler@0.3.0"]), &[]).unwrap_err();
        assert_eq!(
            denial.requested(),
            "import:wasi:http/outgoing-handler@0.3.0",
            "the version is what is missing"
        );
    }

    #[test]
    fn the_preview_of_an_import_matches_the_install() {
        let http = ["wasi:http/outgoing-handler".to_owned()];
        let asked = ImportDeclaration::from_query("wasi:http/outgoing-handler");
        assert_eq!(check_access(&asked, &http).unwrap().granted_by().len(), 1);
        assert_eq!(
            check_access(&ImportDeclaration::from_query("wasi:http/types"), &http)
                .unwrap()
                .granted_by()
                .len(),
            1
        );
        let install = check(&imports(&["wasi:http/outgoing-handler@0.2.4"]), &[]).unwrap_err();
        assert_eq!(check_access(&asked, &[]).unwrap_err(), install);
        assert!(
            check_access(&ImportDeclaration::from_query("wasi:io/poll"), &[])
                .unwrap()
                .granted_by()
                .is_empty()
        );
        assert!(check_access(&ImportDeclaration::from_query("cofferdam:connector/log"), &[]).is_ok());
        for none in
            ["wasi:sockets/tcp", "wasi:http/outgoing-handler@0.3.0", "wasi:io/poll@0.2.0-rc-1", "print"]
        {
            assert!(check_access(&ImportDeclaration::from_query(none), &http).is_err(), "{none}");
        }
    }

    #[test]
    fn unused_declared_imports_are_found() {
        let declared = ["wasi:http/outgoing-handler", "wasi:random/random", "wasi:clocks/wall-clock@0.3.0"]
            .map(String::from);
        let used = ["wasi:http/types@0.2.4", "wasi:random/random@0.2.4", "wasi:clocks/wall-clock@0.2.4"];
        assert_eq!(unused(&imports(&used), &declared), ["wasi:clocks/wall-clock@0.3.0"]);
        assert_eq!(unused(&[], &declared).len(), 3);
    }
}
