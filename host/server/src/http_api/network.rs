//! `GET /v1/network`: the requests of connectors by operation and host, and the granted hosts that had none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::response::Response;
use cofferdam_audit::{RequestKind, RequestResult, RequestSum};
use cofferdam_core::digest::Digest;
use cofferdam_core::error::HostError;
use cofferdam_model::registry::RegistryEntry;
use cofferdam_runtime::call::ConnectorRef;
use cofferdam_runtime::host::{Host, unreadable};
use schemars::JsonSchema;
use serde::Serialize;

use super::audit::{Parameters, parameters};
use super::calls::read_queued;
use super::query::{self, QueryParameters};
use super::{HttpApi, response};

/// The requests of connectors in a time, in calls that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename = "Network")]
pub struct NetworkReport {
    /// The requests by connector, operation and host, the most first.
    pub routes: Vec<NetworkRoute>,
    /// The hosts that active versions of connectors may reach, and that no version of them sent a request to.
    pub unused: Vec<UnusedHost>,
    /// The active versions whose grants cannot be read.
    pub unreadable: Vec<String>,
}

/// The requests of one operation to one host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct NetworkRoute {
    /// The connector, as `name@version`.
    pub connector: String,
    /// The operation; empty for a connector that ran as a fallback for another.
    pub op: String,
    /// The host and port.
    pub host: String,
    /// The number of requests.
    pub requests: u64,
    /// Those with a status below 400.
    pub answered: u64,
    /// Those with a status from 400 to 499.
    pub client_errors: u64,
    /// Those with a status of 500 or more.
    pub server_errors: u64,
    /// Those without a response, or with a part of one.
    pub unanswered: u64,
    /// Those that the host refused to send.
    pub refused: u64,
    /// Those with another method than GET, HEAD and OPTIONS, without refused ones.
    pub writes: u64,
    /// The writes of attempts after the first of their call.
    pub repeated_writes: u64,
    /// Those of them that carried the idempotency key of their call.
    pub keyed_repeated_writes: u64,
}

/// A host that a connector may reach, and did not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnusedHost {
    /// The connector, as `name@version`.
    pub connector: String,
    /// The host and port; with `http://` if it may be reached without TLS.
    pub host: String,
}

impl UnusedHost {
    /// Returns the host and port, as requests have them.
    #[must_use]
    pub fn host_port(&self) -> &str {
        host_port(&self.host)
    }
}

/// Returns the host and port of a granted origin.
fn host_port(grant: &str) -> &str {
    grant.split_once("://").map_or(grant, |(_, host)| host)
}

/// The granted hosts of packages by their hash, so that a package is read once.
pub(super) type KnownGrants = Arc<Mutex<BTreeMap<Digest, Arc<[String]>>>>;

/// The granted hosts of connectors by `name@version`.
type NamedGrants = Vec<(String, Arc<[String]>)>;

impl NetworkRoute {
    fn add(&mut self, kind: RequestKind, requests: u64) {
        let result = match kind.result {
            RequestResult::Answered => &mut self.answered,
            RequestResult::ClientError => &mut self.client_errors,
            RequestResult::ServerError => &mut self.server_errors,
            RequestResult::Unanswered => &mut self.unanswered,
            RequestResult::Refused => &mut self.refused,
        };
        let is_write = kind.is_write && kind.result != RequestResult::Refused;
        let counts = [
            (result, true),
            (&mut self.requests, true),
            (&mut self.writes, is_write),
            (&mut self.repeated_writes, is_write && kind.is_repeated),
            (&mut self.keyed_repeated_writes, is_write && kind.is_repeated && kind.is_keyed),
        ];
        for (count, is_counted) in counts {
            *count = count.saturating_add(if is_counted { requests } else { 0 });
        }
    }
}

impl HttpApi {
    /// Returns the requests of the connectors and the time that the parameters of `GET /v1/network` select.
    ///
    /// # Errors
    /// `validation`: a parameter is not acceptable. `audit_unavailable`: the audit log cannot be read; the index of packages
    /// cannot be read.
    pub async fn network(&self, parameters: Vec<(String, String)>) -> Result<NetworkReport, HostError> {
        let filter = query::network(QueryParameters::new(parameters)?)?;
        let (host, known) = (self.host.clone(), Arc::clone(&self.grants));
        read_queued(self, move || {
            let sums = match host.audit().existing()? {
                Some(mut reader) => reader.requests(&filter).map_err(unreadable)?,
                None => Vec::new(),
            };
            let is_asked = |entry: &RegistryEntry| {
                let name = entry.name.to_string();
                let own = format!("{name}@{}", entry.version);
                entry.is_active
                    && filter.connector.as_ref().is_none_or(|asked| *asked == name || *asked == own)
            };
            let mut active = host.list()?;
            active.retain(is_asked);
            let (grants, unreadable) = granted_hosts(&host, &active, &known);
            Ok(NetworkReport { routes: routes(&sums), unused: unused_hosts(&grants, &sums), unreadable })
        })
        .await
    }
}

/// Returns the requests.
pub(super) async fn show(State(api): State<HttpApi>, query: Parameters) -> Response {
    let network = async { api.network(parameters(query)?).await };
    network.await.map_or_else(response::host_error, |network| response::view(&network))
}

fn routes(sums: &[RequestSum]) -> Vec<NetworkRoute> {
    let mut routes = BTreeMap::<(&str, &str, &str), NetworkRoute>::new();
    for RequestSum { connector, op, host, kind, requests } in sums {
        routes.entry((connector, op, host)).or_default().add(*kind, *requests);
    }
    let named = |((connector, op, host), route): ((&str, &str, &str), NetworkRoute)| NetworkRoute {
        connector: connector.to_owned(),
        op: op.to_owned(),
        host: host.to_owned(),
        ..route
    };
    let mut routes: Vec<_> = routes.into_iter().map(named).collect();
    // Stable: by name where as many.
    routes.sort_by_key(|route| std::cmp::Reverse(route.requests));
    routes
}

/// Returns the granted hosts of these connectors, and those that cannot be read. Packages never change
/// under their hash.
fn granted_hosts(host: &Host, active: &[RegistryEntry], known: &KnownGrants) -> (NamedGrants, Vec<String>) {
    let (mut grants, mut unreadable) = (Vec::new(), Vec::new());
    for entry in active {
        let name = format!("{}@{}", entry.name, entry.version);
        let stored = known.lock().unwrap_or_else(PoisonError::into_inner).get(&entry.digest).map(Arc::clone);
        let hosts = stored.or_else(|| {
            let connector = ConnectorRef::new(entry.name.clone(), entry.version.clone());
            let inspection = host.installed_package(&connector).ok()?.inspection;
            let is_intact = inspection.hash_matches != Some(false);
            let hosts: Arc<[String]> = inspection.network.into();
            is_intact.then_some(hosts)
        });
        match hosts {
            Some(hosts) => {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                known.insert(entry.digest, Arc::clone(&hosts));
                grants.push((name, hosts));
            }
            None => unreadable.push(name),
        }
    }
    (grants, unreadable)
}

/// Returns the granted hosts to which no request was sent by any version of the connector.
fn unused_hosts(grants: &[(String, Arc<[String]>)], sums: &[RequestSum]) -> Vec<UnusedHost> {
    fn name(connector: &str) -> &str {
        connector.split('@').next().unwrap_or(connector)
    }
    let sent = sums.iter().filter(|sum| sum.kind.result != RequestResult::Refused);
    let reached: BTreeSet<_> = sent.map(|sum| (name(&sum.connector), sum.host.as_str())).collect();
    let mut unused = Vec::new();
    for (connector, hosts) in grants {
        let is_unused = |grant: &&String| !reached.contains(&(name(connector), host_port(grant)));
        let own = hosts.iter().filter(is_unused);
        unused.extend(own.map(|host| UnusedHost { connector: connector.clone(), host: host.clone() }));
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(host: &str, result: RequestResult, flags: [bool; 3], requests: u64) -> RequestSum {
        let [is_write, is_repeated, is_keyed] = flags;
        let kind = RequestKind { result, is_write, is_repeated, is_keyed };
        let connector = "github://acme/slack@1.0.0".to_owned();
        RequestSum { connector, op: "post".to_owned(), host: host.to_owned(), kind, requests }
    }

    #[test]
    fn a_route_adds_up_its_requests() {
        let sums = [
            sum("a:443", RequestResult::Answered, [false; 3], 5),
            sum("b:443", RequestResult::Answered, [true, false, false], 1),
            sum("b:443", RequestResult::ServerError, [true, true, true], 2),
            sum("b:443", RequestResult::Unanswered, [true, true, false], 4),
            sum("b:443", RequestResult::ClientError, [false, true, false], 8),
            sum("b:443", RequestResult::Refused, [true, true, true], 16),
        ];
        let routes = routes(&sums);
        let counts = routes.iter().map(|it| [it.requests, it.answered, it.client_errors, it.server_errors]);
        assert_eq!(counts.collect::<Vec<_>>(), [[31, 1, 8, 2], [5, 5, 0, 0]]);
        let counts = routes.iter().map(|it| [it.unanswered, it.refused, it.writes]);
        assert_eq!(counts.collect::<Vec<_>>(), [[4, 16, 7], [0; 3]]);
        let repeated = routes.iter().map(|it| [it.repeated_writes, it.keyed_repeated_writes]);
        assert_eq!(repeated.collect::<Vec<_>>(), [[6, 2], [0; 2]]);
    }

    #[test]
    fn a_host_is_used_if_any_version_reached_it() {
        let hosts = ["a:443", "b:443", "http://c:80"].map(str::to_owned);
        let grants = [("github://acme/slack@2.0.0".to_owned(), Arc::from(hosts))];
        let sums = [
            sum("a:443", RequestResult::ServerError, [false; 3], 1),
            sum("b:443", RequestResult::Refused, [false; 3], 1),
            sum("c:80", RequestResult::Unanswered, [false; 3], 1),
        ];
        let unused: Vec<_> = unused_hosts(&grants, &sums).into_iter().map(|it| it.host).collect();
        assert_eq!(unused, ["b:443"]);
        assert_eq!(unused_hosts(&grants, &[]).len(), 3);
    }
}
