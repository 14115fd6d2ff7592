//! The base of every crate of cofferdam: failures, errors, events, limits, private files, secrets. Embedders
//! use the crate `cofferdam`.

pub mod amounts;
pub mod clock;
pub mod confine;
pub mod digest;
pub mod document;
pub mod error;
pub mod event;
pub mod failpoint;
pub mod failure;
pub mod file_fingerprint;
pub mod home_state;
pub mod host_key;
pub mod limits;
pub mod private_file;
pub mod privileged;
pub mod rng;
pub mod secret;
pub mod strict_json;
pub mod suggest;
pub mod trace;
pub mod warnings;
