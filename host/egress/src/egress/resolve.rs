//! Names to addresses: the one lookup of a connection, and the seam at which tests answer it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use tokio::sync::Semaphore;

/// The lookups that may occupy threads at once. A lookup cannot be interrupted (`getaddrinfo` blocks for
/// half a minute on a dead server), so names that stall could otherwise take every blocking thread. Each
/// connector has 8 of them at most, so that it takes many with stalling names to keep others waiting.
const LOOKUPS: usize = 128;

/// A lookup under way.
pub type Resolution<'a> = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send + 'a>>;

/// Answers with the addresses of a name.
///
/// What it answers is not trusted: the policy sees every address before anything connects to it.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `host`, best first. The caller bounds the wait.
    fn resolve<'a>(&'a self, host: &'a str) -> Resolution<'a>;
}

/// Why a name has no addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// It does not exist, or has no address.
    #[error("the name does not exist, or has no address")]
    NotFound,
    /// It could not be looked up now.
    #[error("the name could not be looked up")]
    Failed,
}

/// The machine's own resolver (`getaddrinfo`: hosts file, DNS, and what else it is configured for).
#[derive(Debug, Clone)]
pub struct SystemResolver {
    running: Arc<Semaphore>,
}

impl Default for SystemResolver {
    /// At most 128 lookups at once; the next ones wait.
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> Resolution<'a> {
        let running = Arc::clone(&self.running);
        let host = host.to_owned();
        Box::pin(async move {
            let permit = running.acquire_owned().await.map_err(|_| ResolveError::Failed)?;
            // The permit goes with the thread: a caller that gave up does not free a thread that has not.
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
        // Which of the two depends on whether this machine reaches a DNS server.
        let none = resolver.resolve("no-such-name.invalid").await;
        assert!(matches!(none, Err(ResolveError::NotFound | ResolveError::Failed)), "{none:?}");
    }
}
