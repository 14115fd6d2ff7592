//! Name resolution: the one lookup of a connection, which tests can replace.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use tokio::sync::Semaphore;

/// The number of lookups that may occupy threads at once. A lookup cannot be interrupted (`getaddrinfo`
/// blocks for half a minute on a dead server), so stalling names could otherwise take every blocking thread.
/// Each connector has 8 of them at most, so that many connectors with stalling names are needed to delay
/// others.
const LOOKUPS: usize = 128;

/// A running lookup.
pub type ResolvedAddresses<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Resolves a name to its addresses.
///
/// The result is not trusted: the policy checks every address before a connection to it is opened.
pub trait Resolve: Send + Sync + 'static {
    /// Returns the addresses of `host`, best first. The caller bounds the wait.
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a>;
}

/// The reason why a name has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name does not exist, or has no address.
    #[error("the name does not exist, or has no address")]
    NotFound,
    /// The lookup failed temporarily.
    #[error("the name could not be looked up")]
    Failed,
}

/// The machine's own resolver (`getaddrinfo`: hosts file, DNS, and other configured sources).
#[derive(Debug, Clone)]
pub struct SystemResolver {
    running: Arc<Semaphore>,
}

impl Default for SystemResolver {
    /// Allows at most 128 lookups at once; further ones wait.
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolvedAddresses<'a> {
        let running = Arc::clone(&self.running);
        let host = host.to_owned();
        Box::pin(async move {
            let permit = running.acquire_owned().await.map_err(|_| ResolveError::Failed)?;
            // The permit belongs to the thread: a cancelled caller does not free a thread that is still
            // blocked.
            let lookup = tokio::task::spawn_blocking(move || {
                let addresses = look_up(&host);
                drop(permit);
                addresses
            });
            lookup.await.map_err(|_| ResolveError::Failed)?
        })
    }
}

fn look_up(host: &str) -> Result<Vec<IpAddr>, ResolveError> {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let answers = getaddrinfo(Some(host), None, Some(hints)).map_err(|error| match error.kind() {
        LookupErrorKind::NoName | LookupErrorKind::NoData => ResolveError::NotFound,
        _ => ResolveError::Failed,
    })?;
    Ok(answers.filter_map(Result::ok).map(|answer| answer.sockaddr.ip()).collect())
}

#[cfg(test)]
mod tests {
    use super::{Resolve, ResolveError, SystemResolver};

    #[tokio::test]
    async fn the_machine_knows_itself_and_no_such_name() {
        let resolver = SystemResolver::default();
        let own = resolver.resolve("localhost").await;
        assert!(
            own.as_ref().is_ok_and(|addresses| addresses.iter().any(std::net::IpAddr::is_loopback)),
            "{own:?}"
        );
        // The error depends on whether this machine reaches a DNS server.
        let none = resolver.resolve("no-such-name.invalid").await;
        assert!(matches!(none, Err(ResolveError::NotFound | ResolveError::Failed)), "{none:?}");
    }
}
