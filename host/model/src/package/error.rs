//! The errors of a package, in sentences that contain the fix.

use cofferdam_core::error::{HostError, HostErrorKind};
use cofferdam_core::failure::sanitize_line;
use semver::Version;

use super::features;
use crate::manifest::DocumentError;

/// The reason why bytes are not an acceptable package.
///
/// [`Display`](std::fmt::Display) gives one sentence, [`fix`](Self::fix) the next step. Text from the
/// component is sanitized and shortened when the error is created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The file is something else than a component.
    #[error("this is {}, not a WebAssembly component", found.words())]
    NotAComponent {
        /// The kind of file that was found.
        found: FileKind,
    },
    /// The bytes are not a well-formed component: truncated, damaged, or invalid.
    #[error("the component is damaged or invalid at byte {offset}: {detail}")]
    Malformed {
        /// The position, in bytes from the start.
        offset: usize,
        /// The validator's words.
        detail: String,
    },
    /// It uses a WebAssembly proposal that is off.
    #[error("the component uses {feature}, which is not enabled here: {detail} (at byte {offset})")]
    Feature {
        /// The proposal.
        feature: String,
        /// The position, in bytes from the start.
        offset: usize,
        /// The validator's words.
        detail: String,
    },
    /// It uses a part of the component model whose cost cannot be computed beforehand.
    #[error("the component {detail}; no connector needs that, and its cost cannot be bounded")]
    Unsupported {
        /// A description of the use.
        detail: String,
    },
    /// It would cost more to compile than any connector needs.
    #[error("the component has {what}: {found}; the host takes up to {limit}")]
    TooCostly {
        /// The exceeded resource.
        what: &'static str,
        /// The amount, or the amount seen when the scan stopped.
        found: u64,
        /// The cap.
        limit: u64,
    },
    /// A section that every package has is not there.
    #[error("the component has no `{section}` section: it was not packed")]
    SectionMissing {
        /// The section's name.
        section: &'static str,
    },
    /// A section that may be there once is there several times.
    #[error("the component has its `{section}` section {count} times; which one counts would be a guess")]
    SectionRepeated {
        /// The section's name.
        section: &'static str,
        /// The number of occurrences.
        count: usize,
    },
    /// A section is inside a nested module or component, where it says nothing about the whole.
    #[error("a nested module or component carries a `{section}` section; it belongs at the top level alone")]
    SectionNested {
        /// The section's name.
        section: &'static str,
    },
    /// The component to be packed already is a package.
    #[error("the component already has a `{section}` section")]
    SectionPresent {
        /// The section's name.
        section: &'static str,
    },
    /// A section's content cannot be read.
    #[error("the `{section}` section cannot be read: {detail}")]
    SectionUnreadable {
        /// The section's name.
        section: &'static str,
        /// The reason.
        detail: String,
    },
    /// The manifest is not acceptable.
    #[error("{0}")]
    Manifest(#[source] Box<DocumentError>),
    /// The WIT source, read for its documentation comments, does not parse.
    #[error("the WIT source cannot be read: {}", wit_reason(detail))]
    WitSource {
        /// The parser's words.
        detail: String,
    },
    /// It was built for a version of the connector contract that this host does not support.
    #[error("the component uses `{found}`; this host speaks cofferdam:connector@{supported}")]
    ContractVersion {
        /// The import or export, with its version.
        found: String,
        /// The version of this host.
        supported: &'static str,
    },
    /// The WIT source uses another version of the connector contract than this host has.
    #[error("the WIT source uses `{found}`; this host speaks cofferdam:connector@{supported}")]
    WitContractVersion {
        /// The package that is used, with its version.
        found: String,
        /// The version of this host.
        supported: &'static str,
    },
    /// It exports no function.
    #[error("the component exports no operation")]
    NoOperations,
    /// An exported function cannot be an operation.
    #[error("the exported function `{function}` cannot be an operation: {problem}")]
    Operation {
        /// The function, with its interface.
        function: String,
        /// The problem.
        problem: String,
        /// The fix.
        fix: &'static str,
    },
    /// Two exported functions have the same name for callers.
    #[error("the exported functions `{first}` and `{second}` would both be called `{name}`")]
    NameClash {
        /// The name that callers would use.
        name: String,
        /// One function, with its interface.
        first: String,
        /// The other.
        second: String,
    },
    /// It exports what is neither a function nor a type.
    #[error("the component exports `{export}`, which is {kind}; a connector exports functions and types")]
    ForeignExport {
        /// The export.
        export: String,
        /// The kind of item.
        kind: &'static str,
    },
    /// The manifest names an operation that the component does not export.
    #[error(
        "the manifest's [connector.{table}.operations] names `{named}` ({place}), which the component does not export"
    )]
    UnknownOperation {
        /// Which table under `connector` names it.
        table: &'static str,
        /// The name in the manifest.
        named: String,
        /// The file and the line.
        place: String,
        /// The operation that was probably meant.
        meant: Option<String>,
    },
}

/// The apparent kind of a file that is not a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// No bytes at all.
    Empty,
    /// A core module.
    CoreModule,
    /// WebAssembly text.
    Text,
    /// Native code: an executable, or a component compiled ahead of time.
    Native,
    /// A compressed file or an archive.
    Archive,
    /// WebAssembly of another binary version.
    OtherVersion,
    /// A WIT package in binary form: types without code.
    WitPackage,
    /// Anything else.
    Unknown,
}

impl FileKind {
    fn words(self) -> &'static str {
        match self {
            Self::Empty => "an empty file",
            Self::CoreModule => "a core WebAssembly module",
            Self::Text => "WebAssembly text",
            Self::Native => "native code (an executable, or a component compiled ahead of time)",
            Self::Archive => "a compressed file or an archive",
            Self::OtherVersion => "WebAssembly of another binary version",
            Self::WitPackage => "a WIT package without code",
            Self::Unknown => "an unknown kind of file",
        }
    }

    fn fix(self) -> &'static str {
        match self {
            Self::CoreModule => "Build it as a component: `cofferdam build`, or target wasm32-wasip2.",
            Self::Text => "Convert it to the binary format first.",
            Self::Native => "Give the component itself; the host compiles it.",
            Self::Archive => "Unpack it first; a package is one .wasm file.",
            Self::WitPackage => "Build the connector that implements it.",
            Self::OtherVersion => "Build it with a current toolchain, targeting wasm32-wasip2.",
            Self::Empty | Self::Unknown => "Give the .wasm file that `cofferdam build` made.",
        }
    }
}

impl PackageError {
    /// The next step, as one or two sentences.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::NotAComponent { found } => found.fix().into(),
            Self::Malformed { .. } => "Fetch or build the file again.".into(),
            Self::Feature { .. } => {
                "Build it without that proposal, for the target wasm32-wasip2 or another of WASI 0.2.".into()
            }
            Self::Unsupported { .. } => "Link the parts into one component when building.".into(),
            Self::TooCostly { .. } => {
                "Make the component smaller, or split it into several connectors.".into()
            }
            Self::SectionMissing { .. } => {
                "Pack it with its manifest: `cofferdam pack COMPONENT --manifest connector.toml`.".into()
            }
            Self::SectionRepeated { .. } | Self::SectionUnreadable { .. } => {
                "Build the component again and pack it once.".into()
            }
            Self::SectionNested { .. } => {
                "Do not compose packages; compose components and pack the result.".into()
            }
            Self::SectionPresent { .. } => {
                "Pack the component as it was before, or say that the sections are to be replaced.".into()
            }
            Self::Manifest(_) => "Correct connector.toml and pack the component again.".into(),
            Self::WitSource { detail } => match detail.split_once('\n') {
                Some((_, excerpt)) => format!("Correct the WIT file:\n{excerpt}"),
                None => "Correct the WIT file.".into(),
            },
            Self::ContractVersion { found, supported } if is_newer(found, supported) => format!(
                "It was built with a newer SDK: update cofferdam, or build it against cofferdam:connector@{supported}."
            ),
            Self::ContractVersion { supported, .. } => {
                format!("Build it against cofferdam:connector@{supported}.")
            }
            Self::WitContractVersion { supported, .. } => {
                format!("Write `use cofferdam:connector/types@{supported}.{{failure}};` in the WIT file.")
            }
            Self::NoOperations => {
                "Export an interface of functions in the connector's world: `export NAME;`.".into()
            }
            Self::Operation { fix, .. } => (*fix).into(),
            Self::NameClash { .. } => "Rename one of the two.".into(),
            Self::ForeignExport { .. } => "Remove the export from the connector's world.".into(),
            Self::UnknownOperation { meant: Some(meant), .. } => format!("Did you mean `{meant}`?"),
            Self::UnknownOperation { meant: None, .. } => "Remove the line from the manifest.".into(),
        }
    }

    /// Returns the error kind of the host for it.
    #[must_use]
    pub fn kind(&self) -> HostErrorKind {
        match self {
            Self::TooCostly { .. } | Self::Unsupported { .. } => HostErrorKind::CompileRefused,
            Self::ContractVersion { .. } | Self::WitContractVersion { .. } => HostErrorKind::ContractVersion,
            _ => HostErrorKind::Validation,
        }
    }

    pub(super) fn malformed(error: &wasmparser::Error) -> Self {
        let (offset, detail) = (error.offset(), sanitize_line(error.message(), 200));
        match error.missing_wasm_feature() {
            Some(missing) => Self::Feature { feature: features::names(missing), offset, detail },
            None => Self::Malformed { offset, detail },
        }
    }
}

impl From<PackageError> for HostError {
    fn from(error: PackageError) -> Self {
        let PackageError::Manifest(document) = &error else {
            let mut host = HostError::new(error.kind(), sentence(&error.to_string())).with_hint(error.fix());
            if let PackageError::TooCostly { found, limit, .. } = &error {
                host = host.detail("limit", "compile").detail("configured", *limit).detail("used", *found);
            }
            return host.with_source(error);
        };
        // A message is one line: the first problem in words, all of them as data. It begins with its place,
        // `connector.toml:12:9`, which is no word to capitalise.
        let (first, rest) = match document.problems() {
            [first, rest @ ..] => (first.to_string(), rest.len()),
            [] => (document.to_string(), 0),
        };
        let more = if rest == 0 { String::new() } else { format!(" ({rest} more)") };
        let problems = serde_json::to_value(document.problems()).unwrap_or_default();
        HostError::new(error.kind(), format!("The manifest is not acceptable: {first}{more}"))
            .with_hint(error.fix())
            .detail("problems", problems)
            .with_source(error)
    }
}

/// Returns whether the version after the `@` is above `supported`.
fn is_newer(name: &str, supported: &str) -> bool {
    let version = |text: &str| Version::parse(text).ok();
    let found = name.split_once('@').and_then(|(_, text)| version(text));
    found.zip(version(supported)).is_some_and(|(found, supported)| found > supported)
}

/// A name from a component, fit for a message.
pub(super) fn printable(name: &str) -> String {
    sanitize_line(name, 128)
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let stop = if text.ends_with(['.', '?']) { "" } else { "." };
    format!("{first}{}{stop}", chars.as_str())
}

/// Returns the parser's reason with its place, without the excerpt of the source.
fn wit_reason(detail: &str) -> String {
    let mut lines = detail.lines();
    let reason = lines.next().unwrap_or_default();
    match lines.find_map(|line| line.trim().strip_prefix("--> ")) {
        Some(place) => format!("{reason}, at {place}"),
        None => reason.to_owned(),
    }
}
