//! A package: one file, the component with its manifest and its operations' docs as custom sections.
//!
//! [`Package::open`] is the only way to one, and everything in it is checked: the bytes cost a bounded amount
//! to compile, the sections are there once, the manifest parses, and every export is an operation whose types
//! are known. Its signature and imports, which decide whether it may run here, are checked elsewhere.

mod comparison;
mod decode;
mod docs;
mod error;
mod features;
mod grants;
mod imports;
mod outline;
mod prescan;
mod sections;
mod shape;
mod wit_outline;

#[cfg(test)]
pub(crate) mod bombs_tests;
#[cfg(test)]
pub(crate) mod fixture_tests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_core::failure::Denial;

pub use comparison::{SectionDifference, section_differences};
pub use decode::VALIDATION_TIMEOUT;
pub use docs::{ConnectorDocs, OperationDocs};
pub use error::{FileKind, PackageError};
pub use features::FEATURES;
pub use grants::PackageGrants;
pub use imports::{
    CONTRACT_VERSION, ImportDeclaration, ImportStatus, ImportVerdict, check_access, failure as failure_shape,
    socket_denial, verdicts,
};
pub use outline::{ParseReply, parse_component, parse_package, unreadable as unreadable_reply};
pub use prescan::MAX_BYTES;
pub use prescan::check_kind;
pub use sections::{DOCS_SECTION, MANIFEST_SECTION, PackageSections, embed, extract, strip, strip_names};
pub use shape::{OperationSignature, ShapeCase, ShapeField, ShapeKey, ValueShape, WitName};
pub use wit_outline::WitOutline;

use crate::manifest::Manifest;

/// The file name in problems of an embedded manifest.
pub const MANIFEST_LABEL: &str = "connector.toml";

/// A package whose bytes, manifest and operations are consistent.
#[derive(Debug)]
pub struct Package {
    bytes: Vec<u8>,
    digest: Digest,
    manifest: Manifest,
    docs: ConnectorDocs,
    operations: Vec<OperationSignature>,
    by_name: HashMap<String, usize>,
    imports: Vec<ImportDeclaration>,
    core_instances: u64,
}

impl Package {
    /// Checks `bytes` and parses them in this process, without running or compiling any: a scan that is
    /// linear in their number, and then the validator, which checks the clock only between two sections. One
    /// section can take minutes, so this is for bytes that you trust; a `Host` has others parsed by its
    /// compile worker, which can be stopped.
    ///
    /// # Errors
    /// The first problem found, cheapest checks first.
    pub fn open(bytes: Vec<u8>) -> Result<Self, PackageError> {
        let parts = outline::parse(&bytes, VALIDATION_TIMEOUT)?;
        check_named(&parts.manifest, &parts.world.operations)?;
        Ok(Self::assemble(bytes, parts))
    }

    /// The package `bytes`, of which a compile worker has replied `reply`.
    pub fn from_reply(bytes: Vec<u8>, reply: ParseReply) -> Result<Self, HostError> {
        let parts = reply.parts(&bytes)?;
        Ok(Self::assemble(bytes, parts))
    }

    fn assemble(bytes: Vec<u8>, parts: outline::ParsedPackage) -> Self {
        let outline::ParsedPackage { manifest, mut docs, world, core_instances, .. } = parts;
        let decode::ComponentInterface { operations, imports } = world;
        docs.keep_only(&operations);
        let by_name =
            operations.iter().enumerate().map(|(at, op)| (op.name().json().to_owned(), at)).collect();
        let digest = Digest::sha256(&bytes);
        Self { digest, bytes, manifest, docs, operations, by_name, imports, core_instances }
    }

    /// The file, byte for byte.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same package without its file, which a connector that is compiled no longer needs and which may
    /// have tens of megabytes: [`bytes`](Self::bytes) is empty from here on.
    pub fn without_bytes(self) -> Self {
        Self { bytes: Vec::new(), ..self }
    }

    /// The package's identity: the SHA-256 of its bytes.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the connector's manifest: its name and the access it requests.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns its author's documentation of its operations.
    #[must_use]
    pub fn docs(&self) -> &ConnectorDocs {
        &self.docs
    }

    /// Its operations, in the component's order.
    #[must_use]
    pub fn operations(&self) -> &[OperationSignature] {
        &self.operations
    }

    /// The operation that callers name `name`.
    #[must_use]
    pub fn operation(&self, name: &str) -> Option<&OperationSignature> {
        self.operations.get(*self.by_name.get(name)?)
    }

    /// Returns the component's imports, in its order.
    #[must_use]
    pub fn imports(&self) -> &[ImportDeclaration] {
        &self.imports
    }

    /// The core modules that one call instantiates, nested components carried out.
    #[must_use]
    pub fn core_instances(&self) -> u64 {
        self.core_instances
    }

    /// Returns the status of each import against the manifest and this host.
    #[must_use]
    pub fn import_verdicts(&self) -> Vec<ImportVerdict> {
        verdicts(&self.imports, self.manifest.imports())
    }

    /// Refuses a package whose component imports more than its manifest names or this host has. Not a
    /// part of [`open`](Self::open), so that such a package can still be inspected.
    ///
    /// # Errors
    /// A denial of the manifest, with every such import.
    pub fn check_imports(&self) -> Result<(), Denial> {
        imports::check(&self.imports, self.manifest.imports())
    }

    /// Returns the interfaces that the manifest names in addition to the component's imports: unused
    /// authority.
    #[must_use]
    pub fn unused_imports(&self) -> Vec<&str> {
        imports::unused(&self.imports, self.manifest.imports())
    }
}

/// Returns the operations that the bare component `component` exports, parsed in this process as by
/// [`Package::open`].
///
/// # Errors
/// The bytes are not a component, are too costly, or export something that cannot be an operation.
pub fn operations_of(component: &[u8]) -> Result<Vec<OperationSignature>, PackageError> {
    prescan::scan(component)?;
    Ok(decode::decode(component, VALIDATION_TIMEOUT)?.operations)
}

/// Every operation that the manifest names is exported.
fn check_named(manifest: &Manifest, operations: &[OperationSignature]) -> Result<(), PackageError> {
    let exported = |named: &str| operations.iter().any(|operation| operation.name().json() == named);
    match manifest.operations_named().find(|named| !exported(named)) {
        Some(named) => Err(unknown_operation(manifest, named, operations)),
        None => Ok(()),
    }
}

fn unknown_operation(manifest: &Manifest, named: &str, operations: &[OperationSignature]) -> PackageError {
    let meant =
        cofferdam_core::suggest::nearest(named, operations.iter().map(|operation| operation.name().json()));
    let meant = meant.map(ToOwned::to_owned);
    let line = |table: &&str| manifest.line_of(&["connector", table, "operations", named]);
    let found = ["idempotency", "effects"].into_iter().find_map(|table| Some((table, line(&table)?)));
    let (table, line) = found.unwrap_or_default();
    let place = format!("{MANIFEST_LABEL}:{line}");
    PackageError::UnknownOperation { table, named: error::printable(named), place, meant }
}
