//! Servers that nobody here wrote: the example connectors as they are, tokens, echoes and faults; see `services/stage.rs`.

mod echo;
mod faults;
mod github;
mod s3;
mod slack;
mod stage;
mod stripe;

pub(crate) use stage::tools;
