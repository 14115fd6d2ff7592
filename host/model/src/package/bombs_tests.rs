//! Files whose cost far exceeds their size, for the tests of the pre-scan and of the compile child.

use wasm_encoder::{
    CodeSection, Component, ComponentSectionId, Function, FunctionSection, MemorySection, MemoryType, Module,
    TypeSection, ValType,
};

const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";

fn leb(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Writes a type's index in a position that also allows primitive types: signed, and so a byte longer from 64
/// on.
fn type_index(mut index: u32, to: &mut Vec<u8>) {
    while index >= 0x40 {
        to.push((index & 0x7f) as u8 | 0x80);
        index >>= 7;
    }
    to.push(index as u8);
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![id];
    leb(content.len() as u64, &mut bytes);
    bytes.extend_from_slice(content);
    bytes
}

/// A component with one core module of `module`.
fn with_module(module: &Module) -> Vec<u8> {
    let mut component = Component::new();
    component.section(&wasm_encoder::ModuleSection(module));
    component.finish()
}

/// Components that each instantiate the previous one `width` times, `levels` deep: a few hundred bytes that
/// mean `width` to the power of `levels` instances.
pub(crate) fn instances(levels: usize, width: usize) -> Vec<u8> {
    let mut component = HEADER.to_vec();
    component.extend(section(ComponentSectionId::CoreModule.into(), b"\0asm\x01\0\0\0"));
    component.extend(section(ComponentSectionId::CoreInstance.into(), &[1, 0, 0, 0]));
    for _ in 0..levels {
        let mut outer = HEADER.to_vec();
        outer.extend(section(ComponentSectionId::Component.into(), &component));
        let mut instantiations = Vec::new();
        leb(width as u64, &mut instantiations);
        (0..width).for_each(|_| instantiations.extend([0, 0, 0]));
        outer.extend(section(ComponentSectionId::Instance.into(), &instantiations));
        component = outer;
    }
    component
}

/// The same, but side by side, each reaching for the one before by an alias.
pub(crate) fn aliased_instances(levels: u8, width: usize) -> Vec<u8> {
    let mut outer = HEADER.to_vec();
    let mut first = HEADER.to_vec();
    first.extend(section(ComponentSectionId::CoreModule.into(), b"\0asm\x01\0\0\0"));
    first.extend(section(ComponentSectionId::CoreInstance.into(), &[1, 0, 0, 0]));
    outer.extend(section(ComponentSectionId::Component.into(), &first));
    for level in 0..levels {
        let mut next = HEADER.to_vec();
        next.extend(section(ComponentSectionId::Alias.into(), &[1, 0x04, 0x02, 1, level]));
        let mut instantiations = Vec::new();
        leb(width as u64, &mut instantiations);
        (0..width).for_each(|_| instantiations.extend([0, 0, 0]));
        next.extend(section(ComponentSectionId::Instance.into(), &instantiations));
        outer.extend(section(ComponentSectionId::Component.into(), &next));
    }
    outer.extend(section(ComponentSectionId::Instance.into(), &[1, 0, levels, 0]));
    outer
}

/// `depth` component sections, each inside the one before.
pub(crate) fn nested_sections(depth: usize) -> Vec<u8> {
    // From the inside out, backwards, so that nothing is copied twice.
    let mut backwards: Vec<u8> = HEADER.iter().rev().copied().collect();
    for _ in 0..depth {
        let mut length = Vec::new();
        leb(backwards.len() as u64, &mut length);
        backwards.extend(length.iter().rev());
        backwards.push(ComponentSectionId::Component.into());
        backwards.extend(HEADER.iter().rev());
    }
    backwards.reverse();
    backwards
}

/// `depth` component types, each inside the one before: three bytes a level.
pub(crate) fn nested_types(depth: usize) -> Vec<u8> {
    let mut types = vec![1];
    (0..depth).for_each(|_| types.extend([0x41, 1, 1]));
    types.extend([0x40, 0, 1, 0]);
    let mut component = HEADER.to_vec();
    component.extend(section(ComponentSectionId::Type.into(), &types));
    component
}

/// Tuples of two of the tuple before, `levels` deep.
pub(crate) fn tuples(levels: u32) -> Vec<u8> {
    let mut types = Vec::new();
    leb(u64::from(levels) + 1, &mut types);
    types.push(0x7f);
    for level in 0..levels {
        types.extend([0x6f, 2]);
        type_index(level, &mut types);
        type_index(level, &mut types);
    }
    let mut component = HEADER.to_vec();
    component.extend(section(ComponentSectionId::Type.into(), &types));
    component
}

/// Lists of the list before, `levels` deep.
pub(crate) fn lists(levels: u32) -> Vec<u8> {
    let mut types = Vec::new();
    leb(u64::from(levels) + 1, &mut types);
    types.push(0x7f);
    for level in 0..levels {
        types.push(0x70);
        type_index(level, &mut types);
    }
    let mut component = HEADER.to_vec();
    component.extend(section(ComponentSectionId::Type.into(), &types));
    component
}

/// One function of `terms` loads at growing offsets, whose compilation takes time in their square.
pub(crate) fn quadratic_function(terms: u64) -> Vec<u8> {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    code.i32_const(0);
    for term in 0..terms {
        let place = wasm_encoder::MemArg { offset: (term * 4096) & 0xffff_ffff, align: 2, memory_index: 0 };
        code.local_get(0).i32_load(place).i32_add();
    }
    code.end();
    one_function(&function, true)
}

/// One function of `pairs` empty `if`s.
pub(crate) fn many_ifs(pairs: usize) -> Vec<u8> {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    for _ in 0..pairs {
        code.i32_const(1).if_(wasm_encoder::BlockType::Empty).else_().end();
    }
    code.i32_const(0).end();
    one_function(&function, false)
}

/// One function of blocks, each inside the one before.
pub(crate) fn nested_blocks(depth: usize) -> Vec<u8> {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    (0..depth).for_each(|_| {
        code.block(wasm_encoder::BlockType::Empty);
    });
    (0..depth).for_each(|_| {
        code.end();
    });
    code.i32_const(0).end();
    one_function(&function, false)
}

fn one_function(function: &Function, memory: bool) -> Vec<u8> {
    let mut module = Module::new();
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32], [ValType::I32]);
    module.section(&types);
    module.section(FunctionSection::new().function(0));
    if memory {
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: 1,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        module.section(&memories);
    }
    module.section(CodeSection::new().function(function));
    with_module(&module)
}

/// A component that says it imports `count` functions, each with a name of `name_bytes`.
pub(crate) fn imports(count: u64, name_bytes: usize) -> Vec<u8> {
    let mut component = HEADER.to_vec();
    component.extend(section(ComponentSectionId::Type.into(), &[1, 0x40, 0, 1, 0]));
    let mut imports = Vec::new();
    leb(count, &mut imports);
    for number in 0..count {
        let digits = format!("{number:0>7}").bytes().map(|digit| digit - b'0' + b'a').collect::<Vec<u8>>();
        imports.push(0);
        leb((digits.len() + name_bytes) as u64, &mut imports);
        imports.extend(digits);
        imports.extend(std::iter::repeat_n(b'x', name_bytes));
        imports.extend([0x01, 0]);
    }
    component.extend(section(ComponentSectionId::Import.into(), &imports));
    component
}

/// A component whose core module has `count` functions of two bytes.
pub(crate) fn functions(count: u32) -> Vec<u8> {
    let mut module = Module::new();
    let mut types = TypeSection::new();
    types.ty().function([], []);
    module.section(&types);
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    let mut empty = Function::new([]);
    empty.instructions().end();
    for _ in 0..count {
        functions.function(0);
        code.function(&empty);
    }
    module.section(&functions);
    module.section(&code);
    with_module(&module)
}

/// A global whose initial value is a sum of `terms` ones.
pub(crate) fn long_constant(terms: usize) -> Vec<u8> {
    let more = "i32.const 1 i32.add ".repeat(terms);
    wat::parse_str(format!("(component (core module (global i32 i32.const 1 {more})))")).unwrap_or_default()
}

/// A function of a type of a million parts, lifted `count` times: the type is flattened again each time.
pub(crate) fn many_lifts(count: usize) -> Vec<u8> {
    let cases =
        |many: usize, of: &str| -> String { (0..many).map(|at| format!("(case \"c{at}\" {of})")).collect() };
    let lifts = "(func (type $f) (canon lift (core func $run)))".repeat(count);
    let text = format!(
        r#"(component
        (type $inner (variant {}))
        (type $outer (variant {}))
        (type $f (func (param "x" $outer)))
        (core module $m (func (export "run") (param i32 i32 i32)))
        (core instance $i (instantiate $m))
        (alias core export $i "run" (core func $run))
        {lifts})"#,
        cases(900, "bool"),
        cases(1_000, "$inner"),
    );
    wat::parse_str(text).unwrap_or_default()
}

/// A component that one section instantiates `count` times with types of a hundred thousand parts, whose long
/// names are compared one by one each time. No parser checks the clock within a section.
pub(crate) fn many_comparisons(count: usize) -> Vec<u8> {
    const LEVELS: usize = 16;
    let fields = |of: &str| {
        let (first, second) = ("a".repeat(120), "b".repeat(120));
        format!("(record (field \"{first}\" {of}) (field \"{second}\" {of}))")
    };
    let part = |name: &str, level: usize| match level {
        0 => "u8".to_owned(),
        _ => format!("${name}{}", level - 1),
    };
    let each = |text: &dyn Fn(usize) -> String| (0..LEVELS).map(text).collect::<String>();
    let types = each(&|level| format!("(type $outer{level} {})", fields(&part("outer", level))));
    let imports = each(&|level| {
        let record = fields(&part("own", level));
        format!("(type $inner{level} {record}) (import \"n{level}\" (type $own{level} (eq $inner{level})))")
    });
    let args = each(&|level| format!("(with \"n{level}\" (type $outer{level}))"));
    let instances = format!("(instance (instantiate $c {args}))").repeat(count);
    wat::parse_str(format!("(component {types} (component $c {imports}) {instances})")).unwrap_or_default()
}
