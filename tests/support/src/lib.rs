//! Shared by the tests and the tour: guests built from source, local servers, a hermetic home.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed assumption ends the test"
)]

pub mod cli;
pub mod discard_log;
pub mod fast_clock;
pub mod faulty_proxy;
pub mod golden;
pub mod guests;
pub mod home;
pub mod log_calls;
pub mod log_capture;
pub mod package;
pub mod process;
pub mod services;
pub mod serving;
pub mod signer;
pub mod snapshot;
pub mod store;
pub mod traffic;
pub mod upstream;
pub mod vault;

pub use cli::{Cli, CommandResult};
pub use cofferdam_dev::{ManualClock, RecordedStep};
pub use discard_log::DiscardLog;
pub use fast_clock::FastClock;
pub use faulty_proxy::{Fault, FaultyProxy};
pub use home::{Home, InstallAccepted, connector};
pub use serving::Serving;
pub use signer::Signer;
pub use snapshot::Snapshot;
pub use upstream::{ReceivedRequest, ScriptedReply, Upstream};
pub use vault::MemoryVault;
