//! Secrets: a text that nobody can print, and the search for it in what passes by.

mod forms;
mod likely;
mod scanner;
mod search;
mod skip;
#[cfg(test)]
mod tests;

use zeroize::Zeroizing;

pub use forms::SHORTEST_SOUGHT;
pub use likely::without_likely;
pub use scanner::Bookmark;
pub use scanner::{Found, REDACTED, Scanner};

/// A secret text. It has no `Debug`, `Display`, `Serialize` or `Clone`, and its memory is cleared when it is
/// dropped: it is shared by reference, and read where it is used and nowhere else.
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes over `text`. The caller's own copies, if it made any, are its own to clear.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself, for the code that puts it where it belongs.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}
