//! The adapter's two core modules: the memory that values pass through, and one entry for each operation.

use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    GlobalSection, GlobalType, ImportSection, MemArg, MemorySection, MemoryType, Module, TypeSection,
    ValType,
};

use crate::values::{CoreSignature, FlatType};

/// The address of the first allocation, which is the image of the arguments: the host writes absolute
/// addresses into it. Below it is the pair that an entry returns.
pub(crate) const BASE: u32 = 16;

/// Pages at the start: room for ordinary calls without a `memory.grow`, which costs an `mprotect`.
const PAGES: u64 = 4;

/// The least that the memory grows by, in pages: 1 MiB.
const GROW: i32 = 16;

const MEMORY: MemoryType =
    MemoryType { minimum: PAGES, maximum: None, memory64: false, shared: false, page_size_log2: None };
const BUMP: GlobalType = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
const REALLOC: [ValType; 4] = [ValType::I32; 4];

/// `memory`, `bump` (the first free address), and `realloc`: a bump allocator over one call's life.
pub(super) fn memory() -> Module {
    let mut types = TypeSection::new();
    types.ty().function(REALLOC, [ValType::I32]);
    let mut functions = FunctionSection::new();
    functions.function(0);
    let mut memories = MemorySection::new();
    memories.memory(MEMORY);
    let mut globals = GlobalSection::new();
    globals.global(BUMP, &ConstExpr::i32_const(BASE.cast_signed()));
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    exports.export("bump", ExportKind::Global, 0);
    exports.export("realloc", ExportKind::Func, 0);
    let mut code = CodeSection::new();
    code.function(&realloc());
    let mut module = Module::new();
    module
        .section(&types)
        .section(&functions)
        .section(&memories)
        .section(&globals)
        .section(&exports)
        .section(&code);
    module
}

/// `realloc(old, old_size, align, new_size) -> address`: traps where there is no more memory.
fn realloc() -> Function {
    const OLD: u32 = 0;
    const OLD_SIZE: u32 = 1;
    const ALIGN: u32 = 2;
    const SIZE: u32 = 3;
    const AT: u32 = 4;
    const MISSING: u32 = 5;
    const END: u32 = 6;
    let mut function = Function::new([(2, ValType::I32), (1, ValType::I64)]);
    let mut code = function.instructions();
    // A block that shrinks stays where it is.
    code.local_get(OLD_SIZE).if_(BlockType::Empty);
    code.local_get(SIZE).local_get(OLD_SIZE).i32_le_u().if_(BlockType::Empty);
    code.local_get(OLD).return_().end().end();
    // at = align_up(bump, align); end = at + size, in 64 bits so that it cannot wrap.
    code.global_get(0).local_get(ALIGN).i32_add().i32_const(1).i32_sub();
    code.i32_const(0).local_get(ALIGN).i32_sub().i32_and().local_set(AT);
    code.local_get(AT).i64_extend_i32_u().local_get(SIZE).i64_extend_i32_u().i64_add().local_set(END);
    // missing = pages(end) - memory.size
    code.local_get(END).i64_const(0xffff).i64_add().i64_const(16).i64_shr_u().i32_wrap_i64();
    code.memory_size(0).i32_sub().local_tee(MISSING);
    code.i32_const(0).i32_gt_s().if_(BlockType::Empty);
    code.local_get(MISSING).i32_const(GROW).local_get(MISSING).i32_const(GROW).i32_gt_s().select();
    code.memory_grow(0).i32_const(-1).i32_eq().if_(BlockType::Empty);
    code.local_get(MISSING).memory_grow(0).i32_const(-1).i32_eq().if_(BlockType::Empty);
    code.unreachable().end().end().end();
    code.local_get(END).i32_wrap_i64().global_set(0);
    code.local_get(OLD_SIZE).if_(BlockType::Empty);
    code.local_get(AT).local_get(OLD).local_get(OLD_SIZE).memory_copy(0, 0).end();
    code.local_get(AT).end();
    function
}

/// One function for each operation, `0`, `1`, ..: `(image, length) -> pair`, where the pair is the address
/// and the length of the result's image. Imports the memory as `m` and the operations as `f`.
pub(super) fn entries<'s>(signatures: impl ExactSizeIterator<Item = &'s CoreSignature>) -> Module {
    let count = u32::try_from(signatures.len()).unwrap_or(u32::MAX);
    let mut types = TypeSection::new();
    types.ty().function(REALLOC, [ValType::I32]);
    types.ty().function([ValType::I32, ValType::I32], [ValType::I32]);
    let mut imports = ImportSection::new();
    imports.import("m", "memory", MEMORY);
    imports.import("m", "bump", BUMP);
    imports.import("m", "realloc", EntityType::Function(0));
    let mut functions = FunctionSection::new();
    let mut exports = ExportSection::new();
    let mut code = CodeSection::new();
    for (at, signature) in (0..).zip(signatures) {
        let flat = signature.flat.as_deref().unwrap_or(&[FlatType::I32]);
        let params: Vec<_> = flat.iter().map(value_type).chain([ValType::I32]).collect();
        types.ty().function(params, []);
        imports.import("f", &at.to_string(), EntityType::Function(2 + at));
        functions.function(1);
        exports.export(&at.to_string(), ExportKind::Func, 1 + count + at);
        code.function(&entry(1 + at, signature));
    }
    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&exports).section(&code);
    module
}

fn entry(operation: u32, signature: &CoreSignature) -> Function {
    const IMAGE: u32 = 0;
    const RESULT: u32 = 2;
    let mut function = Function::new([(1, ValType::I32)]);
    let mut code = function.instructions();
    code.local_get(IMAGE).i32_const(BASE.cast_signed()).i32_ne().if_(BlockType::Empty).unreachable().end();
    match &signature.flat {
        Some(flat) => {
            for (slot, ty) in (0..).zip(flat) {
                let slot = MemArg { offset: u64::from(BASE) + 8 * slot, align: 2, memory_index: 0 };
                code.i32_const(0);
                match ty {
                    FlatType::I32 => code.i32_load(slot),
                    FlatType::I64 => code.i64_load(slot),
                    FlatType::F32 => code.f32_load(slot),
                    FlatType::F64 => code.f64_load(slot),
                };
            }
        }
        None => {
            code.local_get(IMAGE);
        }
    }
    code.i32_const(0).i32_const(0).i32_const(8).i32_const(signature.result_size.cast_signed()).call(0);
    code.local_tee(RESULT).call(operation);
    let pair = |offset| MemArg { offset, align: 2, memory_index: 0 };
    code.i32_const(0).local_get(RESULT).i32_store(pair(0));
    code.i32_const(0).global_get(0).local_get(RESULT).i32_sub().i32_store(pair(4));
    code.i32_const(0).end();
    function
}

fn value_type(flat: &FlatType) -> ValType {
    match flat {
        FlatType::I32 => ValType::I32,
        FlatType::I64 => ValType::I64,
        FlatType::F32 => ValType::F32,
        FlatType::F64 => ValType::F64,
    }
}
