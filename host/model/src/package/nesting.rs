//! The nesting depth of type declarations, measured without recursion.
//!
//! wasmparser reads a component type inside a component type by calling itself, three bytes a level: a file
//! of 15 KB overflows the stack of a thread that asks for its types, and a stack overflow aborts the process.
//! So this walk, which keeps its own stack, comes before any such read.

use wasmparser::{
    BinaryReader, ComponentAlias, ComponentExternName, ComponentImport, ComponentType, ComponentTypeRef,
    CoreType, Result,
};

const COMPONENT_TYPE: u8 = 0x41;
const INSTANCE_TYPE: u8 = 0x42;

/// The owner of a run of declarations, which decides the declarations that are allowed in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeclarationScope {
    Section,
    Component,
    Instance,
}

struct NestingLevel {
    body: DeclarationScope,
    left: u32,
}

/// The deepest nesting in the component type section `section` (its count, then its types), which
/// starts at `offset` of the file; stops early once it is deeper than `cap`.
pub(super) fn depth(section: &[u8], offset: usize, cap: usize) -> Result<usize> {
    let mut reader = BinaryReader::new(section, offset);
    let mut levels = vec![NestingLevel { body: DeclarationScope::Section, left: reader.read_var_u32()? }];
    let mut deepest = 1;
    while let Some(level) = levels.last_mut() {
        if level.left == 0 {
            levels.pop();
            continue;
        }
        level.left -= 1;
        if level.body != DeclarationScope::Section && !declaration_is_type(&mut reader, level.body)? {
            continue;
        }
        let mut ahead = reader.clone();
        let body = match ahead.read_u8()? {
            COMPONENT_TYPE => DeclarationScope::Component,
            INSTANCE_TYPE => DeclarationScope::Instance,
            _ => {
                reader.read::<ComponentType<'_>>()?;
                continue;
            }
        };
        reader = ahead;
        levels.push(NestingLevel { body, left: reader.read_var_u32()? });
        deepest = deepest.max(levels.len());
        if deepest > cap {
            break;
        }
    }
    Ok(deepest)
}

/// Reads one declaration, except that a type is left to the caller.
fn declaration_is_type(reader: &mut BinaryReader<'_>, body: DeclarationScope) -> Result<bool> {
    let tag = reader.clone().read_u8()?;
    match (tag, body) {
        (0x00, _) => {
            reader.read_u8()?;
            reader.read::<CoreType<'_>>()?;
        }
        (0x01, _) => {
            reader.read_u8()?;
            return Ok(true);
        }
        (0x02, _) => {
            reader.read_u8()?;
            reader.read::<ComponentAlias<'_>>()?;
        }
        (0x03, DeclarationScope::Component) => {
            reader.read_u8()?;
            reader.read::<ComponentImport<'_>>()?;
        }
        (0x04, _) => {
            reader.read_u8()?;
            reader.read::<ComponentExternName<'_>>()?;
            reader.read::<ComponentTypeRef>()?;
        }
        // Not a declaration at all: this read fails with the parser's own words.
        _ => {
            reader.read::<wasmparser::InstanceTypeDeclaration<'_>>()?;
        }
    }
    Ok(false)
}
