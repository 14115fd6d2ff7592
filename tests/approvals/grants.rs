//! Requests for grants: what calls were denied, until it is granted, or too long ago.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::{AuditId, Host};
use cofferdam_core::failure::GrantLine;
use cofferdam_egress::egress::{Resolve, ResolvedAddresses};
use cofferdam_runtime::host::GrantRequest;
use cofferdam_test_support::{Upstream, package};
use serde_json::json;

use super::Desk;
use crate::shared_host::{example, failed, run, shared_host};

/// Installs the guest again, with these hosts.
fn grant(desk: &Desk, hosts: &[String]) {
    drop(desk.home.host().remove(&example("probe")));
    run(desk.home.install(&package::guest_package("probe", hosts), &desk.signer)).unwrap();
}

/// A call that is denied, by its id.
#[track_caller]
fn denied(host: &Host, url: &str, code: &str) -> AuditId {
    let failure = failed(run(host.call(&example("probe"), "fetch", json!({"url": url}))));
    assert_eq!(failure.code(), code, "{failure}");
    failure.audit_id().clone()
}

/// The only request.
#[track_caller]
fn only(host: &Host) -> GrantRequest {
    let requests = host.grant_requests().unwrap();
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.into_iter().next().unwrap()
}

#[track_caller]
fn none(host: &Host) {
    let requests = host.grant_requests().unwrap();
    assert!(requests.is_empty(), "{requests:?}");
}

/// The document with the line that would allow it.
fn file(request: &GrantRequest) -> Option<&str> {
    request.allow.as_ref().map(GrantLine::file)
}

/// A server that the guest of the desk is not granted.
fn elsewhere() -> &'static Upstream {
    &shared_host().elsewhere
}

#[test]
fn a_denied_host_is_requested_until_granted() {
    let desk = Desk::new();
    let host = desk.host();
    none(&host);
    let url = elsewhere().url("/text/grants");
    denied(&host, &url, "host_not_granted");
    let last = denied(&host, &url, "host_not_granted");
    let request = only(&host);
    assert_eq!(request.connector, "github://cofferdam/probe@0.1.0");
    assert_eq!((request.kind, &request.subject), ("host", &elsewhere().grant()));
    assert_eq!((request.calls, request.last_call.as_str()), (2, last.as_str()));
    assert!(request.first <= request.last, "{request:?}");
    assert_eq!((request.code, file(&request)), ("host_not_granted", Some("connector.toml")));
    assert!(request.reason.contains(&format!("The connector asked for network:{}", elsewhere().grant())));

    // The manifest has it now, and the configuration does not.
    let upstream = &shared_host().upstream;
    grant(&desk, &[upstream.grant(), elsewhere().grant()]);
    let request = only(&desk.host());
    assert_eq!((request.code, file(&request)), ("private_address", Some("config.toml")));
    none(&desk.builder().allow_private(elsewhere().host_port()).build().unwrap());
}

#[test]
fn an_upgrade_ends_requests_of_the_version_before() {
    let desk = Desk::new();
    let host = desk.host();
    denied(&host, &elsewhere().url("/text/grants"), "host_not_granted");
    assert_eq!(only(&host).calls, 1);
    let manifest = package::guest_manifest("probe").replacen("0.1.0", "0.2.0", 1);
    let manifest = package::with_hosts(&manifest, &[elsewhere().grant()]);
    run(desk.home.install(&package::pack(&package::guest("probe"), &manifest), &desk.signer)).unwrap();
    assert_eq!(only(&desk.host()).connector, "github://cofferdam/probe@0.1.0", "its address is not allowed");
    none(&desk.builder().allow_private(elsewhere().host_port()).build().unwrap());
}

#[test]
fn requests_end_with_their_time_and_connector() {
    let desk = Desk::new();
    let host = desk.host();
    denied(&host, &elsewhere().url("/text/grants"), "host_not_granted");
    assert_eq!(only(&host).calls, 1);
    desk.clock.skip(Duration::from_secs(8 * 86_400));
    none(&host);
    denied(&host, &elsewhere().url("/text/grants"), "host_not_granted");
    assert_eq!(only(&host).calls, 1);
    drop(host.remove(&example("probe")).unwrap());
    none(&host);
}

/// Resolves every name to an address of a private network.
struct Inside;

impl Resolve for Inside {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolvedAddresses<'a> {
        Box::pin(async { Ok(vec![IpAddr::from([10, 0, 0, 1])]) })
    }
}

/// The name of the host is granted, and only its address is not: `why` looks no name up.
#[test]
fn a_private_address_is_requested_until_allowed() {
    let desk = Desk::new();
    grant(&desk, &["internal.example:443".to_owned()]);
    let builder = || desk.builder().resolver(Arc::new(Inside));
    let host = builder().build().unwrap();
    denied(&host, "https://internal.example/", "private_address");
    let request = only(&host);
    assert_eq!((request.kind, request.subject.as_str()), ("host", "internal.example:443"));
    assert_eq!((request.code, file(&request)), ("private_address", Some("config.toml")));
    none(&builder().allow_private("internal.example:443").build().unwrap());
}
