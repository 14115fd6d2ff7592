//! The connector contract as this host speaks it: its version, and the failure that every operation returns.

use std::sync::{Arc, LazyLock};

use semver::Version;

use super::error::{PackageError, printable};
use super::shape::{Case, Field, Name, Shape};

/// The version of the WIT package `cofferdam:connector` that this host speaks. Components made for any
/// 0.1.x are accepted: within it the types are frozen and functions are only added.
pub const CONTRACT_VERSION: &str = "0.1.0";

const PACKAGE: &str = "cofferdam:connector/";

/// Refuses an import or export of the contract in a version that this host does not speak.
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

/// Whether `shape` is the contract's `failure`. Component types are compared by structure: an alias, or
/// a definition of one's own with the same cases, is the same type.
pub(super) fn is_failure(shape: &Shape) -> bool {
    shape == failure()
}

/// `cofferdam:connector/types.{failure}`.
pub fn failure() -> &'static Shape {
    static FAILURE: LazyLock<Shape> = LazyLock::new(make_failure);
    &FAILURE
}

fn make_failure() -> Shape {
    let text = || Shape::Option(Arc::new(Shape::String));
    let phases = ["dns", "connect", "tls", "send", "response"];
    let phase = Shape::Enum(phases.into_iter().map(Name::from_wit).collect());
    variant([
        (
            "upstream",
            record([
                ("status", Shape::Unsigned(16)),
                ("code", text()),
                ("retry-after-ms", Shape::Option(Arc::new(Shape::Unsigned(64)))),
                ("detail", text()),
            ]),
        ),
        ("network", record([("phase", Shape::Option(Arc::new(phase))), ("detail", text())])),
        ("invalid-input", record([("field", text()), ("message", Shape::String), ("detail", text())])),
        (
            "failed",
            record([
                ("code", text()),
                ("message", Shape::String),
                ("transient", Shape::Bool),
                ("detail", text()),
            ]),
        ),
    ])
}

fn record<const N: usize>(fields: [(&str, Shape); N]) -> Shape {
    let field = |(name, shape)| Field { name: Name::from_wit(name), shape };
    Shape::Record(fields.into_iter().map(field).collect())
}

fn variant<const N: usize>(cases: [(&str, Shape); N]) -> Shape {
    let case = |(name, payload)| Case { name: Name::from_wit(name), payload: Some(payload) };
    Shape::Variant(cases.into_iter().map(case).collect())
}
