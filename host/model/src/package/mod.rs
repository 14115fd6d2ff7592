//! A package: one file, the component with its manifest and its operations' docs as custom sections.
//!
//! [`Package::open`] is the only way to one, and everything in it is checked: the bytes cost a bounded
//! amount to compile, the sections are there once, the manifest parses, and every export is an
//! operation whose types are known. Whether it may run here (its signature, its imports) is decided by
//! others.

mod constants;
mod contract;
mod decode;
mod docs;
mod error;
mod features;
mod imports;
mod nesting;
mod operation;
mod outline;
mod prescan;
mod sections;
mod shape;
mod shapes;
mod wit_docs;

#[cfg(test)]
pub(crate) mod bombs;
#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_core::failure::Denial;

pub use contract::CONTRACT_VERSION;
pub use contract::failure as failure_shape;
pub use decode::PATIENCE;
pub use docs::{Docs, OperationDocs};
pub use error::{FileKind, PackageError};
pub use features::FEATURES;
pub use imports::shut;
pub use imports::{Import, ImportVerdict, Standing, foretell, verdicts};
pub use operation::Operation;
pub use outline::{ParseReply, parse_component, parse_package, unreadable as unreadable_reply};
pub use prescan::MAX_BYTES;
pub use prescan::check_kind;
pub use sections::{DOCS_SECTION, MANIFEST_SECTION, Sections, embed, extract, strip};
pub use shape::ShapeKey;
pub use shape::{Case, Field, Name, Shape};

use crate::manifest::Manifest;

/// What problems in an embedded manifest call the file.
pub const MANIFEST_LABEL: &str = "connector.toml";

/// A package whose bytes, manifest and operations hold together.
#[derive(Debug)]
pub struct Package {
    bytes: Vec<u8>,
    digest: Digest,
    manifest: Manifest,
    docs: Docs,
    operations: Vec<Operation>,
    by_name: HashMap<String, usize>,
    imports: Vec<Import>,
    core_instances: u64,
}

impl Package {
    /// Checks `bytes` and parses them in this process, without running or compiling any: a scan that is linear in
    /// their number, and then the validator, which looks at the clock between two sections alone. One section can
    /// take minutes, so this is for bytes that you trust; a `Host` has others parsed by its compile
    /// worker, which can be ended.
    ///
    /// # Errors
    /// The first thing that is wrong, cheapest checks first.
    pub fn open(bytes: Vec<u8>) -> Result<Self, PackageError> {
        let parts = outline::parse(&bytes, PATIENCE)?;
        check_named(&parts.manifest, &parts.world.operations)?;
        Ok(Self::assemble(bytes, parts))
    }

    /// The package `bytes`, of which a compile worker has replied `reply`.
    pub fn from_reply(bytes: Vec<u8>, reply: ParseReply) -> Result<Self, HostError> {
        let parts = reply.parts(&bytes)?;
        Ok(Self::assemble(bytes, parts))
    }

    fn assemble(bytes: Vec<u8>, parts: outline::Parts) -> Self {
        let outline::Parts { manifest, mut docs, world, core_instances, .. } = parts;
        let decode::World { operations, imports } = world;
        docs.keep_only(&operations);
        let by_name =
            operations.iter().enumerate().map(|(at, op)| (op.name().json().to_owned(), at)).collect();
        let digest = Digest::of(&bytes);
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

    /// What the connector is called and asks for.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What its author says about its operations.
    #[must_use]
    pub fn docs(&self) -> &Docs {
        &self.docs
    }

    /// Its operations, in the component's order.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operation that callers name `name`.
    #[must_use]
    pub fn operation(&self, name: &str) -> Option<&Operation> {
        self.operations.get(*self.by_name.get(name)?)
    }

    /// What the component imports, in its order.
    #[must_use]
    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// The core modules that one call instantiates, nested components carried out.
    #[must_use]
    pub fn core_instances(&self) -> u64 {
        self.core_instances
    }

    /// How each import stands against the manifest and this host.
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

    /// What the manifest names beside what the component imports: authority that nothing uses.
    #[must_use]
    pub fn unused_imports(&self) -> Vec<&str> {
        imports::unused(&self.imports, self.manifest.imports())
    }
}

/// The operations that the bare component `component` exports, parsed in this process as by [`Package::open`].
///
/// # Errors
/// What is not a component, is too costly, or exports what cannot be an operation.
pub fn operations_of(component: &[u8]) -> Result<Vec<Operation>, PackageError> {
    prescan::scan(component)?;
    Ok(decode::decode(component, PATIENCE)?.operations)
}

/// Every operation that the manifest names is exported.
fn check_named(manifest: &Manifest, operations: &[Operation]) -> Result<(), PackageError> {
    let exported = |named: &str| operations.iter().any(|operation| operation.name().json() == named);
    match manifest.operations_named().find(|named| !exported(named)) {
        Some(named) => Err(unknown_operation(manifest, named, operations)),
        None => Ok(()),
    }
}

fn unknown_operation(manifest: &Manifest, named: &str, operations: &[Operation]) -> PackageError {
    let meant =
        cofferdam_core::spelling::nearest(named, operations.iter().map(|operation| operation.name().json()));
    let meant = meant.map(ToOwned::to_owned);
    let line = |table: &&str| manifest.line_of(&["connector", table, "operations", named]);
    let found = ["idempotency", "effects"].into_iter().find_map(|table| Some((table, line(&table)?)));
    let (table, line) = found.unwrap_or_default();
    let place = format!("{MANIFEST_LABEL}:{line}");
    PackageError::UnknownOperation { table, named: error::printable(named), place, meant }
}
