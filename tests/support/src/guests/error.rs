//! Why there is no guest, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// The reason why a guest is not available. Its text names the remedy.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum GuestError {
    /// No example connector has that name.
    Unknown {
        /// The requested name.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// This machine has no Rust that compiles for `wasm32-wasip2`, and none could be made.
    NoTarget {
        /// The output of the attempts.
        output: String,
    },
    /// The guests do not compile.
    Build {
        /// The folder cargo was run in.
        folder: PathBuf,
        /// The end of its output.
        output: String,
    },
    /// A file or program could not be used.
    Io {
        /// The attempted operation.
        what: &'static str,
        /// Which one.
        path: PathBuf,
        /// The system's error.
        error: String,
    },
}

impl GuestError {
    pub(super) fn io(what: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), error: error.to_string() }
    }
}

impl fmt::Display for GuestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } => {
                write!(f, "no example connector `{name}`; there are: {}", known.join(", "))
            }
            Self::NoTarget { output } => write!(
                f,
                "the example connectors cannot be compiled: no Rust for wasm32-wasip2\n\
                 fix: rustup target add wasm32-wasip2\n{output}"
            ),
            Self::Build { folder, output } => write!(
                f,
                "the example connectors do not compile\n\
                 fix: see for yourself with `cargo build --release` in {}\n{output}",
                folder.display()
            ),
            Self::Io { what, path, error } => write!(f, "cannot {what} {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for GuestError {}
