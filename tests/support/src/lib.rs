//! What the tests and the tour share: guests built from source, local servers, a hermetic home.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what a test stands on either holds or ends the test"
)]

pub mod cli;
pub mod committed;
pub mod faulty;
pub mod guests;
pub mod hasty;
pub mod home;
pub mod package;
pub mod process;
pub mod records;
pub mod services;
pub mod signer;
pub mod skipping;
pub mod snapshot;
pub mod traffic;
pub mod upstream;
pub mod vault;

pub use cli::{Cli, Ran};
pub use faulty::{Fault, Faulty};
pub use hasty::Hasty;
pub use home::{Home, connector};
pub use signer::Signer;
pub use skipping::{Kept, Skipping};
pub use snapshot::Snapshot;
pub use upstream::{Seen, Turn, Upstream};
pub use vault::MemoryVault;
