//! The file `home.state` next to `host.key`: the progress of the audit log and the vault of a home.
//!
//! A log or a vault that is restored from an older copy is still consistent, and one that is deleted leaves
//! nothing to verify. So the home stores the progress of both in a third file, under a MAC of the host's key.
//! Each of the two also contains the counter of the other: an older `home.state` is detected by them.
//!
//! The file is never ahead of the log or the vault, because it is written after them. It may be behind after
//! a crash.

mod progress;
mod store;

pub use progress::{HomeProgress, LogProgress, StateLoss, VaultMark};
pub use store::{HomeState, StateError, StoredState, VAULT_MAGIC, vault_header};
