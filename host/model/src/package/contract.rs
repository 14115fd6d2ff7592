//! The connector contract of this host: its version, and the failure that every operation returns.

use std::sync::{Arc, LazyLock};

use semver::Version;

use super::error::{PackageError, printable};
use super::shape::{ShapeCase, ShapeField, ValueShape, WitName};

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
