//! How a value lies in memory, by the canonical ABI: sizes, alignments and offsets, made once at load.

use std::collections::HashMap;
use std::sync::Arc;

use cofferdam_model::package::{Field, Name, Operation, Shape, failure_shape};

/// The most flat parameters; with more, the parameters lie in memory.
const MAX_FLAT: u32 = 16;

/// Bytes of a flat value in an image.
pub(super) const SLOT: usize = 8;

/// A type's place in memory. The sizes are those of the canonical ABI, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(super) size: u32,
    pub(super) align: u32,
    /// How many flat values it is.
    pub(super) flat: u32,
    /// Where a case's payload starts, in types that have cases.
    pub(super) payload: u32,
    /// Whether it is or has a list.
    lists: bool,
    pub(super) kind: Kind,
}

/// A type, with what is inside it. The parallel of [`Shape`].
#[derive(Debug, Clone)]
pub(super) enum Kind {
    Bool,
    Signed(u8),
    Unsigned(u8),
    Float(u8),
    Char,
    String,
    Bytes,
    List(Arc<Layout>),
    Tuple(Arc<[(u32, Layout)]>),
    Option(Arc<Layout>),
    Result(Option<Arc<Layout>>, Option<Arc<Layout>>),
    Record(Arc<[Part]>),
    Variant(Arc<[Case]>),
    Enum(Arc<[Name]>),
    Flags(Arc<[Name]>),
}

impl Kind {
    fn has_lists(&self) -> bool {
        let side = |side: &Option<Arc<Layout>>| side.as_ref().is_some_and(|side| side.lists);
        match self {
            Kind::Bytes | Kind::List(_) => true,
            Kind::Tuple(items) => items.iter().any(|(_, item)| item.lists),
            Kind::Record(parts) => parts.iter().any(|part| part.layout.lists),
            Kind::Variant(cases) => cases.iter().filter_map(|case| case.payload.as_ref()).any(|p| p.lists),
            Kind::Option(item) => item.lists,
            Kind::Result(ok, err) => side(ok) || side(err),
            _ => false,
        }
    }
}

/// A record's field, or an operation's parameter.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: Name,
    pub(super) offset: u32,
    pub(super) layout: Layout,
}

/// A variant's case.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: Name,
    pub(super) payload: Option<Layout>,
}

/// A core value type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flat {
    I32,
    I64,
    F32,
    F64,
}

/// What an operation's function looks like to a core module.
#[derive(Debug, Clone)]
pub(crate) struct Signature {
    /// The parameters; none where they lie in memory.
    pub(crate) flat: Option<Vec<Flat>>,
    /// The size of the result, in bytes.
    pub(crate) result_size: u32,
}

/// The layouts of one operation's parameters and result.
#[derive(Debug, Clone)]
pub(crate) struct OperationLayout {
    /// A record of the parameters.
    pub(super) params: Layout,
    /// `result<T, failure>`.
    pub(super) result: Layout,
}

impl OperationLayout {
    pub(crate) fn signature(&self) -> Signature {
        let flat = (self.params.flat <= MAX_FLAT).then(|| {
            let mut flat = Vec::new();
            self.params.flatten_type(&mut flat);
            flat
        });
        Signature { flat, result_size: self.result.size }
    }

    /// Whether a list is anywhere in its types.
    pub(crate) fn has_lists(&self) -> bool {
        self.params.lists || self.result.lists
    }

    /// Where the parameters start in an image: after the flat values.
    pub(super) fn params_at(&self) -> usize {
        self.flat_params() as usize * SLOT
    }

    /// How many parameters are passed as flat values.
    pub(super) fn flat_params(&self) -> u32 {
        if self.params.flat <= MAX_FLAT { self.params.flat } else { 0 }
    }
}

impl Layout {
    fn new(size: u32, align: u32, flat: u32, kind: Kind) -> Self {
        Self { size, align, flat, payload: 0, lists: kind.has_lists(), kind }
    }

    fn flatten_type(&self, out: &mut Vec<Flat>) {
        match &self.kind {
            Kind::Signed(64) | Kind::Unsigned(64) => out.push(Flat::I64),
            Kind::Float(32) => out.push(Flat::F32),
            Kind::Float(_) => out.push(Flat::F64),
            Kind::Bool | Kind::Signed(_) | Kind::Unsigned(_) | Kind::Char | Kind::Enum(_) => {
                out.push(Flat::I32)
            }
            Kind::Flags(names) if names.is_empty() => {}
            Kind::Flags(_) => out.push(Flat::I32),
            Kind::String | Kind::Bytes | Kind::List(_) => out.extend([Flat::I32, Flat::I32]),
            Kind::Tuple(items) => items.iter().for_each(|(_, item)| item.flatten_type(out)),
            Kind::Record(parts) => parts.iter().for_each(|part| part.layout.flatten_type(out)),
            Kind::Option(item) => flatten_cases([Some(&**item)], out),
            Kind::Result(ok, err) => flatten_cases([ok.as_deref(), err.as_deref()], out),
            Kind::Variant(cases) => flatten_cases(cases.iter().map(|case| case.payload.as_ref()), out),
        }
    }
}

/// A discriminant, then what every payload's flat values fit into.
fn flatten_cases<'l>(cases: impl IntoIterator<Item = Option<&'l Layout>>, out: &mut Vec<Flat>) {
    out.push(Flat::I32);
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

fn join(a: Flat, b: Flat) -> Flat {
    match (a, b) {
        (a, b) if a == b => a,
        (Flat::I32 | Flat::F32, Flat::I32 | Flat::F32) => Flat::I32,
        _ => Flat::I64,
    }
}

/// The bytes of the discriminant of so many cases.
pub(super) fn discriminant(cases: usize) -> u32 {
    match cases {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// Makes layouts, each shared shape once.
#[derive(Default)]
pub(crate) struct Layouts {
    known: HashMap<cofferdam_model::package::ShapeKey, Layout>,
}

impl Layouts {
    /// The layouts of an operation.
    pub(crate) fn operation(&mut self, operation: &Operation) -> OperationLayout {
        self.function(operation.params(), operation.result())
    }

    /// The layouts of a function with these parameters, whose result is `result<result, failure>`.
    pub(crate) fn function(&mut self, params: &[Field], result: Option<&Shape>) -> OperationLayout {
        let params = self.record(params);
        let ok = result.map(|ok| Arc::new(self.of(ok)));
        let failure = self.of(failure_shape());
        let result = self.result(ok, Some(Arc::new(failure)));
        OperationLayout { params, result }
    }

    pub(super) fn of(&mut self, shape: &Shape) -> Layout {
        let Some(key) = shape.key() else { return leaf(shape) };
        if let Some(layout) = self.known.get(&key) {
            return layout.clone();
        }
        let layout = self.compound(shape);
        self.known.insert(key, layout.clone());
        layout
    }

    fn compound(&mut self, shape: &Shape) -> Layout {
        match shape {
            Shape::List(item) => Layout::new(8, 4, 2, Kind::List(Arc::new(self.of(item)))),
            Shape::Tuple(items) => {
                let mut place = Place::default();
                let items: Arc<[_]> = items.iter().map(|item| place.add(self.of(item))).collect();
                place.end(Kind::Tuple(items))
            }
            Shape::Record(fields) => self.record(fields),
            Shape::Option(item) => {
                let item = self.of(item);
                cases(2, [(item.size, item.align, item.flat)], Kind::Option(Arc::new(item)))
            }
            Shape::Result(ok, err) => {
                let ok = ok.as_ref().map(|ok| Arc::new(self.of(ok)));
                let err = err.as_ref().map(|err| Arc::new(self.of(err)));
                self.result(ok, err)
            }
            Shape::Variant(all) => {
                let all: Arc<[Case]> = all
                    .iter()
                    .map(|case| Case {
                        name: case.name.clone(),
                        payload: case.payload.as_ref().map(|payload| self.of(payload)),
                    })
                    .collect();
                let payloads: Vec<_> = all
                    .iter()
                    .filter_map(|case| case.payload.as_ref())
                    .map(|payload| (payload.size, payload.align, payload.flat))
                    .collect();
                cases(all.len(), payloads, Kind::Variant(all))
            }
            shape => leaf(shape),
        }
    }

    fn record(&mut self, fields: &[Field]) -> Layout {
        let mut place = Place::default();
        let parts: Arc<[Part]> = fields
            .iter()
            .map(|field| {
                let (offset, layout) = place.add(self.of(&field.shape));
                Part { name: field.name.clone(), offset, layout }
            })
            .collect();
        place.end(Kind::Record(parts))
    }

    fn result(&mut self, ok: Option<Arc<Layout>>, err: Option<Arc<Layout>>) -> Layout {
        let sides: Vec<_> =
            [&ok, &err].into_iter().flatten().map(|side| (side.size, side.align, side.flat)).collect();
        cases(2, sides, Kind::Result(ok, err))
    }
}

/// Parts, one after the other.
#[derive(Default)]
struct Place {
    end: u32,
    align: u32,
    flat: u32,
}

impl Place {
    fn add(&mut self, layout: Layout) -> (u32, Layout) {
        let offset = self.end.next_multiple_of(layout.align);
        self.end = offset.saturating_add(layout.size);
        self.align = self.align.max(layout.align);
        self.flat = self.flat.saturating_add(layout.flat);
        (offset, layout)
    }

    fn end(self, kind: Kind) -> Layout {
        let align = self.align.max(1);
        Layout::new(self.end.next_multiple_of(align), align, self.flat, kind)
    }
}

/// `count` cases, of which some have payloads of these sizes, alignments and flat values.
fn cases(count: usize, payloads: impl IntoIterator<Item = (u32, u32, u32)>, kind: Kind) -> Layout {
    let head = discriminant(count);
    let (size, align, flat) = payloads
        .into_iter()
        .fold((0, 1, 0), |most, one| (most.0.max(one.0), most.1.max(one.1), most.2.max(one.2)));
    let payload = head.next_multiple_of(align);
    let align = align.max(head);
    let size = payload.saturating_add(size).next_multiple_of(align);
    Layout { payload, ..Layout::new(size, align, flat.saturating_add(1), kind) }
}

fn leaf(shape: &Shape) -> Layout {
    let number = |bits: u8| (u32::from(bits / 8), 1);
    let (kind, (size, flat)) = match shape {
        Shape::Bool => (Kind::Bool, (1, 1)),
        Shape::Signed(bits) => (Kind::Signed(*bits), number(*bits)),
        Shape::Unsigned(bits) => (Kind::Unsigned(*bits), number(*bits)),
        Shape::Float(bits) => (Kind::Float(*bits), number(*bits)),
        Shape::Char => (Kind::Char, (4, 1)),
        Shape::Enum(names) => (Kind::Enum(Arc::clone(names)), (discriminant(names.len()), 1)),
        Shape::Flags(names) => {
            let size = match names.len() {
                0 => 0,
                1..=8 => 1,
                9..=16 => 2,
                _ => 4,
            };
            (Kind::Flags(Arc::clone(names)), (size, size.min(1)))
        }
        Shape::Bytes => return Layout::new(8, 4, 2, Kind::Bytes),
        // Strings; what else is compound does not get here.
        _ => return Layout::new(8, 4, 2, Kind::String),
    };
    Layout::new(size, size.max(1), flat, kind)
}
