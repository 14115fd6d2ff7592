//! Packages on OCI registries and web servers. The CLI uses this crate; no host that serves calls does.
//!
//! A [`RemoteRef`] is resolved once to a digest. Everything after that is requested by digest, kept in memory, and
//! compared with the digest before it is returned ([`DistributionClient::fetch`]). The digest of a package's layer is the
//! SHA-256 of the package, which is its identity everywhere else. Nothing else from a registry is trusted: not
//! the config, not annotations, and not that a signature is one; the caller verifies it.
//!
//! All connections, also those of redirects and token services, go through one guard (`guard.rs`), which applies the
//! address rules of the egress guard to the address that it connects to, allows plain HTTP only where the operator
//! does, or to a loopback address, and counts the received bytes.

mod artifact;
mod client;
mod credentials;
mod error;
mod guard;
mod panic_guard;
mod publish;
mod reference;
mod registry;
mod settings;
mod web;

pub use client::{DistributionClient, FetchedPackage, FetchedTrust};
pub use publish::{ComponentInterface, Publication, Published};
pub use reference::{PackageRef, ReferenceError, RegistryRef, RemoteRef, WebRef};
pub use settings::DistributionSettings;
