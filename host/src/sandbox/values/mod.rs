//! JSON <-> component values, along the shapes that were made at load.
//!
//! The mapping (documented for users in `docs/json.md`): records are objects, variants `{"case": payload}`
//! or `"case"`, enums strings, flags arrays of strings, options the value or `null` (an option in an
//! option wraps: `{"some": ..}`), results `{"ok": ..}` or `{"err": ..}`, tuples and lists arrays,
//! `list<u8>` base64 text, 64-bit integers numbers that are accepted as strings too, NaN and the
//! infinities strings, characters strings of one character. Names are snake_case.

mod lift;
mod lower;

pub(crate) use lift::lift;
pub(crate) use lower::lower_arguments;

/// The length of a value's compact JSON text, in bytes.
pub(crate) fn json_size(value: &serde_json::Value) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len() as u64);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing a `Value` to a writer that never fails cannot fail.
    drop(serde_json::to_writer(&mut count, value));
    count.0
}

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;
