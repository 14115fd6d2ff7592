//! Real servers by third parties: the unchanged example connectors, tokens, echoes and faults; see
//! `services/fixture.rs`.

mod echo;
mod faults;
pub(crate) mod fixture;
mod github;
mod s3;
mod slack;
mod stripe;

pub(crate) use fixture::tools;
