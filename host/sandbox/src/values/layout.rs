//! The layout of values in memory by the canonical ABI: sizes, alignments and offsets, computed once at load.

use std::collections::HashMap;
use std::sync::Arc;

use cofferdam_model::package::{OperationSignature, ShapeField, ValueShape, WitName, failure_shape};

use super::abi_buffer::{AbiBuffer, MalformedBuffer};

/// The maximum of flat parameters; with more, the parameters lie in memory.
const MAX_FLAT: u32 = 16;

/// Bytes of a flat value in an image.
pub(super) const SLOT: usize = 8;

/// A type's place in memory. The sizes are those of the canonical ABI, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct AbiLayout {
    pub(super) size: u32,
    pub(super) align: u32,
    /// The number of its flat values.
    pub(super) flat: u32,
    /// The offset of a case's payload, in types that have cases.
    pub(super) payload: u32,
    /// True if it is or contains a list.
    lists: bool,
    pub(super) kind: LayoutKind,
}

/// A type and its inner types. The counterpart of [`Shape`].
#[derive(Debug, Clone)]
pub(super) enum LayoutKind {
    Bool,
    Signed(u8),
    Unsigned(u8),
    Float(u8),
    Char,
    String,
    Bytes,
    List(Arc<AbiLayout>),
    Tuple(Arc<[(u32, AbiLayout)]>),
    Option(Arc<AbiLayout>),
    Result(Option<Arc<AbiLayout>>, Option<Arc<AbiLayout>>),
    Record(Arc<[LayoutPart]>),
    Variant(Arc<[LayoutCase]>),
    Enum(Arc<[WitName]>),
    Flags(Arc<[WitName]>),
}

impl LayoutKind {
    fn has_lists(&self) -> bool {
        let side = |side: &Option<Arc<AbiLayout>>| side.as_ref().is_some_and(|side| side.lists);
        match self {
            LayoutKind::Bytes | LayoutKind::List(_) => true,
            LayoutKind::Tuple(items) => items.iter().any(|(_, item)| item.lists),
            LayoutKind::Record(parts) => parts.iter().any(|part| part.layout.lists),
            LayoutKind::Variant(cases) => {
                cases.iter().filter_map(|case| case.payload.as_ref()).any(|p| p.lists)
            }
            LayoutKind::Option(item) => item.lists,
            LayoutKind::Result(ok, err) => side(ok) || side(err),
            _ => false,
        }
    }
}

/// A record's field, or an operation's parameter.
#[derive(Debug, Clone)]
pub(super) struct LayoutPart {
    pub(super) name: WitName,
    pub(super) offset: u32,
    pub(super) layout: AbiLayout,
}

/// A variant's case.
#[derive(Debug, Clone)]
pub(super) struct LayoutCase {
    pub(super) name: WitName,
    pub(super) payload: Option<AbiLayout>,
}

/// A core value type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlatType {
    I32,
    I64,
    F32,
    F64,
}

/// The signature of an operation's function for a core module.
#[derive(Debug, Clone)]
pub(crate) struct CoreSignature {
    /// The parameters; none if they lie in memory.
    pub(crate) flat: Option<Vec<FlatType>>,
    /// The size of the result, in bytes.
    pub(crate) result_size: u32,
}

/// The layouts of one operation's parameters and result.
#[derive(Debug, Clone)]
pub(crate) struct OperationLayout {
    /// A record of the parameters.
    pub(super) params: AbiLayout,
    /// `result<T, failure>`.
    pub(super) result: AbiLayout,
}

impl OperationLayout {
    pub(crate) fn signature(&self) -> CoreSignature {
        let flat = (self.params.flat <= MAX_FLAT).then(|| {
            let mut flat = Vec::new();
            self.params.flatten_type(&mut flat);
            flat
        });
        CoreSignature { flat, result_size: self.result.size }
    }

    /// Returns true if its types contain a list.
    pub(crate) fn has_lists(&self) -> bool {
        self.params.lists || self.result.lists
    }

    /// Returns the start of the parameters in an image: after the flat values.
    pub(super) fn params_at(&self) -> usize {
        self.flat_params() as usize * SLOT
    }

    /// Returns the number of parameters that are passed as flat values.
    pub(super) fn flat_params(&self) -> u32 {
        if self.params.flat <= MAX_FLAT { self.params.flat } else { 0 }
    }
}

impl AbiLayout {
    fn new(size: u32, align: u32, flat: u32, kind: LayoutKind) -> Self {
        Self { size, align, flat, payload: 0, lists: kind.has_lists(), kind }
    }

    fn flatten_type(&self, out: &mut Vec<FlatType>) {
        match &self.kind {
            LayoutKind::Signed(64) | LayoutKind::Unsigned(64) => out.push(FlatType::I64),
            LayoutKind::Float(32) => out.push(FlatType::F32),
            LayoutKind::Float(_) => out.push(FlatType::F64),
            LayoutKind::Bool
            | LayoutKind::Signed(_)
            | LayoutKind::Unsigned(_)
            | LayoutKind::Char
            | LayoutKind::Enum(_) => out.push(FlatType::I32),
            LayoutKind::Flags(names) if names.is_empty() => {}
            LayoutKind::Flags(_) => out.push(FlatType::I32),
            LayoutKind::String | LayoutKind::Bytes | LayoutKind::List(_) => {
                out.extend([FlatType::I32, FlatType::I32])
            }
            LayoutKind::Tuple(items) => items.iter().for_each(|(_, item)| item.flatten_type(out)),
            LayoutKind::Record(parts) => parts.iter().for_each(|part| part.layout.flatten_type(out)),
            LayoutKind::Option(item) => flatten_cases([Some(&**item)], out),
            LayoutKind::Result(ok, err) => flatten_cases([ok.as_deref(), err.as_deref()], out),
            LayoutKind::Variant(cases) => flatten_cases(cases.iter().map(|case| case.payload.as_ref()), out),
        }
    }
}

/// Returns a discriminant, then the flat values that fit those of every payload.
fn flatten_cases<'l>(cases: impl IntoIterator<Item = Option<&'l AbiLayout>>, out: &mut Vec<FlatType>) {
    out.push(FlatType::I32);
    let start = out.len();
    for payload in cases.into_iter().flatten() {
        let mut flat = Vec::new();
        payload.flatten_type(&mut flat);
        for (at, new) in flat.into_iter().enumerate() {
            match out.get_mut(start + at) {
                Some(joined) => *joined = join(*joined, new),
                None => out.push(new),
            }
        }
    }
}

fn join(a: FlatType, b: FlatType) -> FlatType {
    match (a, b) {
        (a, b) if a == b => a,
        (FlatType::I32 | FlatType::F32, FlatType::I32 | FlatType::F32) => FlatType::I32,
        _ => FlatType::I64,
    }
}

/// Returns the size of the discriminant of so many cases, in bytes.
pub(super) fn discriminant(cases: usize) -> u32 {
    match cases {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// Builds layouts, each shared shape once.
#[derive(Default)]
pub(crate) struct LayoutTable {
    known: HashMap<cofferdam_model::package::ShapeKey, AbiLayout>,
}

impl LayoutTable {
    /// The layouts of an operation.
    pub(crate) fn operation(&mut self, operation: &OperationSignature) -> OperationLayout {
        self.function(operation.params(), operation.result())
    }

    /// The layouts of a function with these parameters, whose result is `result<result, failure>`.
    pub(crate) fn function(&mut self, params: &[ShapeField], result: Option<&ValueShape>) -> OperationLayout {
        let params = self.record(params);
        let ok = result.map(|ok| Arc::new(self.layout_of(ok)));
        let failure = self.layout_of(failure_shape());
        let result = self.result(ok, Some(Arc::new(failure)));
        OperationLayout { params, result }
    }

    pub(super) fn layout_of(&mut self, shape: &ValueShape) -> AbiLayout {
        let Some(key) = shape.key() else { return leaf(shape) };
        if let Some(layout) = self.known.get(&key) {
            return layout.clone();
        }
        let layout = self.compound(shape);
        self.known.insert(key, layout.clone());
        layout
    }

    fn compound(&mut self, shape: &ValueShape) -> AbiLayout {
        match shape {
            ValueShape::List(item) => {
                AbiLayout::new(8, 4, 2, LayoutKind::List(Arc::new(self.layout_of(item))))
            }
            ValueShape::Tuple(items) => {
                let mut place = LayoutPosition::default();
                let items: Arc<[_]> = items.iter().map(|item| place.add(self.layout_of(item))).collect();
                place.end(LayoutKind::Tuple(items))
            }
            ValueShape::Record(fields) => self.record(fields),
            ValueShape::Option(item) => {
                let item = self.layout_of(item);
                cases(2, [(item.size, item.align, item.flat)], LayoutKind::Option(Arc::new(item)))
            }
            ValueShape::Result(ok, err) => {
                let ok = ok.as_ref().map(|ok| Arc::new(self.layout_of(ok)));
                let err = err.as_ref().map(|err| Arc::new(self.layout_of(err)));
                self.result(ok, err)
            }
            ValueShape::Variant(all) => {
                let all: Arc<[LayoutCase]> = all
                    .iter()
                    .map(|case| LayoutCase {
                        name: case.name.clone(),
                        payload: case.payload.as_ref().map(|payload| self.layout_of(payload)),
                    })
                    .collect();
                let payloads: Vec<_> = all
                    .iter()
                    .filter_map(|case| case.payload.as_ref())
                    .map(|payload| (payload.size, payload.align, payload.flat))
                    .collect();
                cases(all.len(), payloads, LayoutKind::Variant(all))
            }
            shape => leaf(shape),
        }
    }

    fn record(&mut self, fields: &[ShapeField]) -> AbiLayout {
        let mut place = LayoutPosition::default();
        let parts: Arc<[LayoutPart]> = fields
            .iter()
            .map(|field| {
                let (offset, layout) = place.add(self.layout_of(&field.shape));
                LayoutPart { name: field.name.clone(), offset, layout }
            })
            .collect();
        place.end(LayoutKind::Record(parts))
    }

    fn result(&mut self, ok: Option<Arc<AbiLayout>>, err: Option<Arc<AbiLayout>>) -> AbiLayout {
        let sides: Vec<_> =
            [&ok, &err].into_iter().flatten().map(|side| (side.size, side.align, side.flat)).collect();
        cases(2, sides, LayoutKind::Result(ok, err))
    }
}

/// The running position while parts are placed one after the other.
#[derive(Default)]
struct LayoutPosition {
    end: u32,
    align: u32,
    flat: u32,
}

impl LayoutPosition {
    fn add(&mut self, layout: AbiLayout) -> (u32, AbiLayout) {
        let offset = self.end.next_multiple_of(layout.align);
        self.end = offset.saturating_add(layout.size);
        self.align = self.align.max(layout.align);
        self.flat = self.flat.saturating_add(layout.flat);
        (offset, layout)
    }

    fn end(self, kind: LayoutKind) -> AbiLayout {
        let align = self.align.max(1);
        AbiLayout::new(self.end.next_multiple_of(align), align, self.flat, kind)
    }
}

/// Returns the layout of `count` cases, some of them with payloads of these sizes, alignments and flat
/// values.
fn cases(count: usize, payloads: impl IntoIterator<Item = (u32, u32, u32)>, kind: LayoutKind) -> AbiLayout {
    let head = discriminant(count);
    let (size, align, flat) = payloads
        .into_iter()
        .fold((0, 1, 0), |most, one| (most.0.max(one.0), most.1.max(one.1), most.2.max(one.2)));
    let payload = head.next_multiple_of(align);
    let align = align.max(head);
    let size = payload.saturating_add(size).next_multiple_of(align);
    AbiLayout { payload, ..AbiLayout::new(size, align, flat.saturating_add(1), kind) }
}

fn leaf(shape: &ValueShape) -> AbiLayout {
    let number = |bits: u8| (u32::from(bits / 8), 1);
    let (kind, (size, flat)) = match shape {
        ValueShape::Bool => (LayoutKind::Bool, (1, 1)),
        ValueShape::Signed(bits) => (LayoutKind::Signed(*bits), number(*bits)),
        ValueShape::Unsigned(bits) => (LayoutKind::Unsigned(*bits), number(*bits)),
        ValueShape::Float(bits) => (LayoutKind::Float(*bits), number(*bits)),
        ValueShape::Char => (LayoutKind::Char, (4, 1)),
        ValueShape::Enum(names) => (LayoutKind::Enum(Arc::clone(names)), (discriminant(names.len()), 1)),
        ValueShape::Flags(names) => {
            let size = match names.len() {
                0 => 0,
                1..=8 => 1,
                9..=16 => 2,
                _ => 4,
            };
            (LayoutKind::Flags(Arc::clone(names)), (size, size.min(1)))
        }
        ValueShape::Bytes => return AbiLayout::new(8, 4, 2, LayoutKind::Bytes),
        // Strings; other compound types do not get here.
        _ => return AbiLayout::new(8, 4, 2, LayoutKind::String),
    };
    AbiLayout::new(size, size.max(1), flat, kind)
}

/// Appends the flat values of the value at `at`.
pub(super) fn flatten(
    layout: &AbiLayout,
    image: AbiBuffer<'_>,
    at: usize,
    out: &mut Vec<u64>,
) -> Result<(), MalformedBuffer> {
    match &layout.kind {
        LayoutKind::Signed(8) => {
            out.push(i32::from(i8::from_le_bytes(image.get(at)?)).cast_unsigned().into())
        }
        LayoutKind::Signed(16) => {
            out.push(i32::from(i16::from_le_bytes(image.get(at)?)).cast_unsigned().into())
        }
        LayoutKind::Signed(64) | LayoutKind::Unsigned(64) | LayoutKind::Float(64) => {
            out.push(u64::from_le_bytes(image.get(at)?))
        }
        LayoutKind::Bool
        | LayoutKind::Signed(_)
        | LayoutKind::Unsigned(_)
        | LayoutKind::Float(_)
        | LayoutKind::Char
        | LayoutKind::Enum(_) => {
            out.push(image.sized(at, layout.size)?.into());
        }
        LayoutKind::Flags(names) if names.is_empty() => {}
        LayoutKind::Flags(_) => out.push(image.sized(at, layout.size)?.into()),
        LayoutKind::String | LayoutKind::Bytes | LayoutKind::List(_) => {
            out.push(image.sized(at, 4)?.into());
            out.push(image.sized(at + 4, 4)?.into());
        }
        LayoutKind::Tuple(items) => {
            for (offset, item) in items.iter() {
                flatten(item, image, at + *offset as usize, out)?;
            }
        }
        LayoutKind::Record(parts) => {
            for part in parts.iter() {
                flatten(&part.layout, image, at + part.offset as usize, out)?;
            }
        }
        LayoutKind::Option(item) => {
            flatten_case(layout, 1, |case| (case == 1).then_some(&**item), image, at, out)?
        }
        LayoutKind::Result(ok, err) => {
            let side = |case| if case == 0 { ok.as_deref() } else { err.as_deref() };
            flatten_case(layout, 1, side, image, at, out)?;
        }
        LayoutKind::Variant(cases) => {
            let payload = |case: u32| cases.get(case as usize).and_then(|case| case.payload.as_ref());
            flatten_case(layout, discriminant(cases.len()), payload, image, at, out)?;
        }
    }
    Ok(())
}

fn flatten_case<'l>(
    layout: &AbiLayout,
    head: u32,
    payload: impl FnOnce(u32) -> Option<&'l AbiLayout>,
    image: AbiBuffer<'_>,
    at: usize,
    out: &mut Vec<u64>,
) -> Result<(), MalformedBuffer> {
    let end = out.len() + layout.flat as usize;
    let case = image.sized(at, head)?;
    out.push(case.into());
    if let Some(payload) = payload(case) {
        flatten(payload, image, at + layout.payload as usize, out)?;
    }
    out.resize(end, 0);
    Ok(())
}
