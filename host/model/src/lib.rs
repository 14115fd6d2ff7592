//! The documents of cofferdam: manifests, actions, keyrings, packages, and the registry of those that are installed.

pub mod action;
pub mod manifest;
pub mod package;
pub mod registry;
pub mod trust;
