//! A component's exports and imports: its operations with their types, and its imports.
//!
//! Validates the component's outline (every type and signature, not the code, which the compiler checks) and
//! reads the types from the validator itself. A component is not trusted: every exported function is checked
//! here, and each error names the function.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cofferdam_core::clock::{Clock, SystemClock};
use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentEntityType, ComponentFuncType, ComponentFuncTypeId, ComponentInstanceTypeId,
};
use wasmparser::types::{Types, TypesRef};
use wasmparser::{
    BinaryReader, ComponentCanonicalSectionReader, Parser, Payload, ValidPayload, Validator, WasmFeatures,
};

use super::error::{FileKind, PackageError, printable};
use super::features::{self, FEATURES};
use super::imports;
use super::imports::ImportDeclaration;
use super::shape::OperationSignature;
use super::shape::ShapeBuilder;
use super::shape::{ShapeField, WitName};

/// The most operations of one connector.
const MAX_OPERATIONS: u64 = 1_000;
const MAX_LABEL_BYTES: usize = 256;

/// Exported functions that toolchains leave behind and that are not meant to be called: they are no
/// operations and cannot be called here. (componentize-py's initialiser, which ran when the component was
/// built.)
const LEFT_BEHIND: &[(&str, &str)] = &[("exports", "init")];

const RETURN_FIX: &str = "Return `result<T, failure>` or `result<_, failure>`, with \
                          `use cofferdam:connector/types@0.1.0.{failure};` in the interface.";
const VALUES_FIX: &str = "Take and return values only: numbers, strings, records, variants, lists, options.";

/// A component's face.
#[derive(Debug)]
pub(super) struct ComponentInterface {
    pub(super) operations: Vec<OperationSignature>,
    pub(super) imports: Vec<ImportDeclaration>,
}

/// Decodes a component that has passed the pre-scan.
pub(super) fn decode(bytes: &[u8], patience: Duration) -> Result<ComponentInterface, PackageError> {
    let outline = outline(bytes, patience)?;
    let types = outline.types.as_ref();
    let mut imports = Vec::with_capacity(outline.imports.len());
    for name in outline.imports {
        imports::check_version(name)?;
        let item = types.component_item_for_import(name);
        imports.push(ImportDeclaration::new(
            name,
            matches!(item.map(|item| item.ty), Some(ComponentEntityType::Instance(_))),
        ));
    }
    let mut exports = ExportReader {
        types,
        shapes: ShapeBuilder::new(types),
        operations: Vec::new(),
        by_name: HashMap::new(),
    };
    let mut wit_only = !outline.exports.is_empty() && imports.is_empty();
    for name in &outline.exports {
        let Some(item) = types.component_item_for_export(name) else { continue };
        wit_only &=
            matches!(item.ty, ComponentEntityType::Type { created: ComponentAnyTypeId::Component(_), .. });
        exports.add(name, item.ty)?;
    }
    if wit_only {
        return Err(PackageError::NotAComponent { found: FileKind::WitPackage });
    }
    if exports.operations.is_empty() {
        return Err(PackageError::NoOperations);
    }
    Ok(ComponentInterface { operations: exports.operations, imports })
}

pub(super) struct ValidatedTypes<'a> {
    types: Types,
    imports: Vec<&'a str>,
    exports: Vec<&'a str>,
}

/// Validates everything but the bodies of functions, which the compiler validates, with the same features.
fn outline(bytes: &[u8], patience: Duration) -> Result<ValidatedTypes<'_>, PackageError> {
    outline_with(bytes, FEATURES, patience).map_err(|error| match error {
        // The validator does not always report a missing proposal: if it finds no fault with every proposal
        // on, a proposal was missing.
        PackageError::Malformed { offset, detail }
            if outline_with(bytes, WasmFeatures::all(), patience).is_ok() =>
        {
            PackageError::Feature { feature: features::names(WasmFeatures::empty()), offset, detail }
        }
        error => error,
    })
}

pub(super) fn outline_with(
    bytes: &[u8],
    features: WasmFeatures,
    patience: Duration,
) -> Result<ValidatedTypes<'_>, PackageError> {
    let patience = WorkBudget { since: SystemClock.now(), most: patience };
    let mut validator = Validator::new_with_features(features);
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| PackageError::malformed(&error))?;
        if let Payload::ComponentCanonicalSection(section) = &payload {
            one_by_one(&mut validator, section, bytes, &patience)?;
            continue;
        }
        let valid = validator.payload(&payload).map_err(|error| PackageError::malformed(&error))?;
        patience.lasts()?;
        match (&payload, depth) {
            (Payload::ModuleSection { .. } | Payload::ComponentSection { .. }, _) => depth += 1,
            (Payload::End(_), 0) => {
                if let ValidPayload::End(types) = valid {
                    return Ok(ValidatedTypes { types, imports, exports });
                }
            }
            (Payload::End(_), _) => depth -= 1,
            (Payload::ComponentImportSection(section), 0) => {
                imports.extend(section.clone().into_iter().flatten().map(|import| import.name.name));
            }
            (Payload::ComponentExportSection(section), 0) => {
                exports.extend(section.clone().into_iter().flatten().map(|export| export.name.name));
            }
            _ => {}
        }
    }
    Err(PackageError::Malformed { offset: bytes.len(), detail: "the file ends too early".into() })
}

/// The longest that the validation of a package may take; CPython's 18 MB take some hundredths of it. The
/// clock is read between sections, and one of them can take minutes: the limits of the compile worker apply
/// in every case, and this one is for callers of [`Package::open`](super::Package::open).
pub const VALIDATION_TIMEOUT: Duration = Duration::from_secs(5);

struct WorkBudget {
    since: Instant,
    most: Duration,
}

impl WorkBudget {
    fn lasts(&self) -> Result<(), PackageError> {
        let (found, limit) =
            (SystemClock.now().saturating_duration_since(self.since).as_millis(), self.most.as_millis());
        let count = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
        if found <= limit {
            return Ok(());
        }
        let what = "validating it takes too long (in milliseconds)";
        Err(PackageError::TooCostly { what, found: count(found), limit: count(limit) })
    }
}

/// Validates canonical functions one at a time: each flattens a type of up to a million parts again, so that
/// a section of a few kilobytes could take hours at once.
fn one_by_one(
    validator: &mut Validator,
    section: &ComponentCanonicalSectionReader<'_>,
    bytes: &[u8],
    patience: &WorkBudget,
) -> Result<(), PackageError> {
    let malformed = |error: wasmparser::BinaryReaderError| PackageError::malformed(&error);
    let mut starts = Vec::new();
    for item in section.clone().into_iter_with_offsets() {
        starts.push(item.map_err(malformed)?.0);
    }
    let ends = starts.iter().skip(1).copied().chain([section.range().end]);
    for (start, end) in starts.iter().zip(ends) {
        let one = [&[1], bytes.get(*start..end).unwrap_or_default()].concat();
        let reader = BinaryReader::new(&one, start.saturating_sub(1));
        let one = ComponentCanonicalSectionReader::new(reader).map_err(malformed)?;
        validator.component_canonical_section(&one).map_err(malformed)?;
        patience.lasts()?;
    }
    Ok(())
}

struct ExportReader<'t> {
    types: TypesRef<'t>,
    shapes: ShapeBuilder<'t>,
    operations: Vec<OperationSignature>,
    by_name: HashMap<String, String>,
}

impl ExportReader<'_> {
    fn add(&mut self, name: &str, ty: ComponentEntityType) -> Result<(), PackageError> {
        imports::check_version(name)?;
        match ty {
            ComponentEntityType::Type { .. } => Ok(()),
            ComponentEntityType::Func(id) => self.function(None, name, id),
            ComponentEntityType::Instance(id) => self.interface(name, id),
            ComponentEntityType::Module(_) => Err(foreign(name, "a core module")),
            ComponentEntityType::Component(_) => Err(foreign(name, "a component")),
            ComponentEntityType::Value(_) => Err(foreign(name, "a value")),
        }
    }

    fn interface(&mut self, interface: &str, id: ComponentInstanceTypeId) -> Result<(), PackageError> {
        let types = self.types;
        let Some(instance) = types.get(id) else { return Ok(()) };
        for (name, item) in &instance.exports {
            match item.ty {
                ComponentEntityType::Type { .. } => {}
                ComponentEntityType::Func(_) if LEFT_BEHIND.contains(&(interface, name)) => {}
                ComponentEntityType::Func(id) => self.function(Some(interface), name, id)?,
                _ => return Err(foreign(&format!("{interface}#{name}"), "neither a function nor a type")),
            }
        }
        Ok(())
    }

    fn function(
        &mut self,
        interface: Option<&str>,
        name: &str,
        id: ComponentFuncTypeId,
    ) -> Result<(), PackageError> {
        let types = self.types;
        let Some(function) = types.get(id) else { return Ok(()) };
        let full =
            interface.map_or_else(|| printable(name), |interface| printable(&format!("{interface}#{name}")));
        let operation = self
            .operation(interface, name, function)
            .map_err(|(problem, fix)| PackageError::Operation { function: full.clone(), problem, fix })?;
        if self.operations.len() as u64 == MAX_OPERATIONS {
            let found = MAX_OPERATIONS + 1;
            return Err(PackageError::TooCostly {
                what: "too many operations",
                found,
                limit: MAX_OPERATIONS,
            });
        }
        if let Some(first) = self.by_name.insert(operation.name.json().to_owned(), full.clone()) {
            return Err(PackageError::NameClash {
                name: operation.name.json().to_owned(),
                first,
                second: full,
            });
        }
        self.operations.push(operation);
        Ok(())
    }

    fn operation(
        &mut self,
        interface: Option<&str>,
        name: &str,
        function: &ComponentFuncType,
    ) -> Result<OperationSignature, (String, &'static str)> {
        if function.async_ {
            return Err(("it is asynchronous".into(), "Declare it `func`, not `async func`."));
        }
        if name.starts_with('[') {
            let fix = "Make it a function of the interface, taking and returning values.";
            return Err(("it belongs to a resource".into(), fix));
        }
        let mut params = Vec::with_capacity(function.params.len());
        for (param, ty) in &function.params {
            let built = self.shapes.resolve(*ty).map_err(|unfit| {
                (format!("its parameter `{}` {unfit}", printable(param.as_str())), VALUES_FIX)
            })?;
            params.push(ShapeField { name: label(param.as_str())?, shape: built.shape });
        }
        let Some((ok, err)) = function.result.and_then(|ty| self.shapes.result_of(ty)) else {
            return Err(("it does not return a result".into(), RETURN_FIX));
        };
        let err = err.and_then(|err| self.shapes.resolve(err).ok());
        if !err.is_some_and(|err| imports::is_failure(&err.shape)) {
            return Err(("its error is not the contract's `failure`".into(), RETURN_FIX));
        }
        let ok = ok.map(|ok| self.shapes.resolve(ok)).transpose();
        let ok = ok.map_err(|unfit| (format!("its result {unfit}"), VALUES_FIX))?;
        Ok(OperationSignature {
            name: label(name)?,
            interface: interface.map(str::to_owned),
            params,
            result: ok.map(|ok| ok.shape),
        })
    }
}

fn label(text: &str) -> Result<WitName, (String, &'static str)> {
    if text.len() > MAX_LABEL_BYTES {
        return Err((format!("it has a name of {} bytes", text.len()), "Use names of up to 256 bytes."));
    }
    Ok(WitName::from_wit(text))
}

fn foreign(export: &str, kind: &'static str) -> PackageError {
    PackageError::ForeignExport { export: printable(export), kind }
}
