//! The length of a core module's constant expressions: each is computed at every instantiation, before the
//! first unit of fuel is charged.

use wasmparser::{ConstExpr, DataKind, ElementKind, Payload, Result, TableInit};

/// Bytes of the longest constant expression in the section, 0 where it has none.
///
/// The items of element segments are not checked: each is one instruction, by its type.
pub(super) fn longest(payload: &Payload<'_>) -> Result<u64> {
    let mut longest = 0;
    let mut note = |expression: &ConstExpr<'_>| {
        longest = longest.max(expression.get_binary_reader().bytes_remaining() as u64);
    };
    match payload {
        Payload::GlobalSection(section) => {
            for global in section.clone() {
                note(&global?.init_expr);
            }
        }
        Payload::TableSection(section) => {
            for table in section.clone() {
                if let TableInit::Expr(expression) = table?.init {
                    note(&expression);
                }
            }
        }
        Payload::ElementSection(section) => {
            for element in section.clone() {
                if let ElementKind::Active { offset_expr, .. } = element?.kind {
                    note(&offset_expr);
                }
            }
        }
        Payload::DataSection(section) => {
            for data in section.clone() {
                if let DataKind::Active { offset_expr, .. } = data?.kind {
                    note(&offset_expr);
                }
            }
        }
        _ => {}
    }
    Ok(longest)
}
