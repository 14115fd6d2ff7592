//! Flat parameters: the values of an image as the canonical ABI passes them to a function.
//!
//! Each takes one slot of eight bytes, its own bits first and zeros after. So a slot holds the same for
//! every core type that the cases of a variant agree on, and the entry loads what its signature says.

use super::image::{Image, Malformed};
use super::layout::{Kind, Layout, discriminant};

/// Adds the flat values of the value at `at`.
pub(super) fn flatten(
    layout: &Layout,
    image: Image<'_>,
    at: usize,
    out: &mut Vec<u64>,
) -> Result<(), Malformed> {
    match &layout.kind {
        Kind::Signed(8) => out.push(i32::from(i8::from_le_bytes(image.get(at)?)).cast_unsigned().into()),
        Kind::Signed(16) => out.push(i32::from(i16::from_le_bytes(image.get(at)?)).cast_unsigned().into()),
        Kind::Signed(64) | Kind::Unsigned(64) | Kind::Float(64) => {
            out.push(u64::from_le_bytes(image.get(at)?))
        }
        Kind::Bool | Kind::Signed(_) | Kind::Unsigned(_) | Kind::Float(_) | Kind::Char | Kind::Enum(_) => {
            out.push(image.sized(at, layout.size)?.into());
        }
        Kind::Flags(names) if names.is_empty() => {}
        Kind::Flags(_) => out.push(image.sized(at, layout.size)?.into()),
        Kind::String | Kind::Bytes | Kind::List(_) => {
            out.push(image.sized(at, 4)?.into());
            out.push(image.sized(at + 4, 4)?.into());
        }
        Kind::Tuple(items) => {
            for (offset, item) in items.iter() {
                flatten(item, image, at + *offset as usize, out)?;
            }
        }
        Kind::Record(parts) => {
            for part in parts.iter() {
                flatten(&part.layout, image, at + part.offset as usize, out)?;
            }
        }
        Kind::Option(item) => flatten_case(layout, 1, |case| (case == 1).then_some(&**item), image, at, out)?,
        Kind::Result(ok, err) => {
            let side = |case| if case == 0 { ok.as_deref() } else { err.as_deref() };
            flatten_case(layout, 1, side, image, at, out)?;
        }
        Kind::Variant(cases) => {
            let payload = |case: u32| cases.get(case as usize).and_then(|case| case.payload.as_ref());
            flatten_case(layout, discriminant(cases.len()), payload, image, at, out)?;
        }
    }
    Ok(())
}

fn flatten_case<'l>(
    layout: &Layout,
    head: u32,
    payload: impl FnOnce(u32) -> Option<&'l Layout>,
    image: Image<'_>,
    at: usize,
    out: &mut Vec<u64>,
) -> Result<(), Malformed> {
    let end = out.len() + layout.flat as usize;
    let case = image.sized(at, head)?;
    out.push(case.into());
    if let Some(payload) = payload(case) {
        flatten(payload, image, at + layout.payload as usize, out)?;
    }
    out.resize(end, 0);
    Ok(())
}
