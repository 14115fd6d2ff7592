//! Flat parameters: the values of an image as the canonical ABI passes them to a function.
//!
//! Each takes one slot of eight bytes, its own bits first and zeros after. So a slot holds the same for every
//! core type that the cases of a variant share, and the entry loads the types of its signature.

use super::image::{AbiImage, MalformedImage};
use super::layout::{AbiLayout, LayoutKind, discriminant};

/// Appends the flat values of the value at `at`.
pub(super) fn flatten(
    layout: &AbiLayout,
    image: AbiImage<'_>,
    at: usize,
    out: &mut Vec<u64>,
) -> Result<(), MalformedImage> {
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
    image: AbiImage<'_>,
    at: usize,
    out: &mut Vec<u64>,
) -> Result<(), MalformedImage> {
    let end = out.len() + layout.flat as usize;
    let case = image.sized(at, head)?;
    out.push(case.into());
    if let Some(payload) = payload(case) {
        flatten(payload, image, at + layout.payload as usize, out)?;
    }
    out.resize(end, 0);
    Ok(())
}
