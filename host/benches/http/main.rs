//! The cost of a request through the gate, against the same client called by native code: latency and
//! requests a second, with 1 and 64 callers on 1 and 2 threads, against a keep-alive server on loopback.
//!
//! `cargo bench --bench http`
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unreachable_pub,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

mod load;
mod server;

use std::sync::Arc;

use bytes::Bytes;
use cofferdam::{Compiler, ConnectorRef, Host};
use cofferdam_egress::egress::{
    Authorization, EgressClient, EgressPolicy, EgressTimeouts, PrivateGrant, SystemResolver, default_tls,
};
use cofferdam_model::manifest::HostGrant;
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{DiscardLog, Home, Signer, connector};
use http::Request;
use http_body_util::{BodyExt, Full};
use load::Row;
use serde_json::{Value, json};
use server::Server;
use tokio::runtime::Builder;

/// Requests in one call of the rows that leave the call itself out; a call may make 64.
const MANY: u32 = 64;

/// The posted body.
const BODY: &[u8] = &[b'x'; 100];

fn native(name: &'static str, client: &EgressClient, url: &str, body: Option<&'static [u8]>) -> Row {
    let (client, url) = (client.clone(), url.to_owned());
    Row::new(name, 1, move || {
        let (client, url) = (client.clone(), url.clone());
        async move {
            let request = match body {
                Some(body) => Request::post(url).body(Full::new(Bytes::from_static(body))),
                None => Request::get(url).body(Full::default()),
            };
            let request = request.unwrap();
            let target = client.policy().decide(request.uri(), None).unwrap();
            let (timeouts, nothing) = (EgressTimeouts::default(), Authorization::default());
            let answer = client.send(request, &target, &timeouts, &nothing, None).await.unwrap();
            assert_eq!(answer.status(), 200);
            answer.into_body().collect().await.unwrap();
        }
    })
}

fn guest(
    name: &'static str,
    requests: u32,
    host: &Host,
    probe: &ConnectorRef,
    (op, args): (&'static str, Value),
) -> Row {
    let (host, probe) = (host.clone(), probe.clone());
    Row::new(name, requests, move || {
        let (host, probe, args) = (host.clone(), probe.clone(), args.clone());
        async move { drop(host.call(&probe, op, args).await.unwrap()) }
    })
}

fn main() {
    let (home, signer, server) =
        (Home::with_compiler(Compiler::in_process()), Signer::new(), Server::start());
    home.trust(&signer.public(), "github://cofferdam/*");
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(home.install(&guest_package("probe", &[server.url("")]), &signer)).unwrap();
    let probe = connector("github://cofferdam/probe@0.1.0");
    let grant = HostGrant::parse(&server.url("")).unwrap();
    let url = server.url("/");

    for (threads, callers) in [(1, 1), (1, 64), (2, 1), (2, 64)] {
        // Each its own: connections live in the runtime that made them.
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
        let host = home.builder_alone().concurrency(256).allow_private(server.host_port()).build().unwrap();
        let policy = EgressPolicy::new(
            std::slice::from_ref(&grant),
            &[PrivateGrant::parse(&server.host_port()).unwrap()],
        );
        let unrecorded = home.builder_alone().concurrency(256).allow_private(server.host_port());
        let unrecorded = unrecorded.audit_log(Arc::new(DiscardLog)).build().unwrap();
        let client = EgressClient::new(default_tls([]).unwrap(), Arc::new(SystemResolver::default()), policy);
        let before = server.connections();
        println!("{threads} threads, {callers} callers:");
        load::rounds(
            &runtime,
            callers,
            vec![
                native("native GET", &client, &url, None),
                native("native POST of 100 bytes", &client, &url, Some(BODY)),
                guest(
                    "guest call that returns 1 KB, no request",
                    1,
                    &host,
                    &probe,
                    ("big_result", json!({"bytes": 1_024})),
                ),
                guest("guest GET, the whole call", 1, &host, &probe, ("fetch", json!({"url": url}))),
                guest("the same, not recorded", 1, &unrecorded, &probe, ("fetch", json!({"url": url}))),
                guest(
                    "guest POST of 100 bytes, the whole call",
                    1,
                    &host,
                    &probe,
                    ("post_bytes", json!({"url": url, "bytes": BODY.len()})),
                ),
                guest(
                    "guest GET, one of 64 in a call",
                    MANY,
                    &host,
                    &probe,
                    ("fetch_many", json!({"url": url, "times": MANY})),
                ),
            ],
        );
        println!("  connections: {}\n", server.connections() - before);
    }
}
