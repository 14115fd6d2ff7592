//! The file `home.state` beside `host.key`: how far the audit log and the vault of a home had come.
//!
//! A log or a vault that is put back from an older copy holds together as well as ever, and one that is deleted leaves
//! nothing to verify. So the home keeps a record of both in a third file, under a MAC of the host's key. Each of the
//! two carries the counter of the other as well: an older `home.state` shows in them.
//!
//! The file is never ahead of the log or the vault: it is written after them. It may be behind, after a crash.

mod progress;
mod store;

pub use progress::{LogProgress, Loss, Progress, VaultMark};
pub use store::{HomeState, StateError, Stored, VAULT_MAGIC, vault_header};
