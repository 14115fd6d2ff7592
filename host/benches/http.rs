//! What a request through the gate costs beside the same client called by native code: latency and
//! requests a second, with 1 and 64 callers, against one keep-alive server on loopback.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cofferdam::egress::{Authorization, Client, HostPort, Policy, SystemResolver, Timeouts, default_tls};
use cofferdam::manifest::HostGrant;
use cofferdam::{Compiler, ConnectorRef, Host};
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer, Upstream, connector};
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

/// How long each row runs.
const ROW: Duration = Duration::from_millis(2_000);

/// Requests in one call of the rows that leave the call itself out; a call may make 64.
const MANY: u32 = 64;

/// Latencies of `callers` that ask again and again until the time is up, sorted.
fn load<C, F>(runtime: &Runtime, callers: usize, ask: C) -> Vec<Duration>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let until = Instant::now() + ROW;
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let ask = ask.clone();
            runtime.spawn(async move {
                let mut latencies = Vec::new();
                while Instant::now() < until {
                    let start = Instant::now();
                    ask().await;
                    latencies.push(start.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut latencies: Vec<Duration> =
        tasks.into_iter().flat_map(|task| runtime.block_on(task).unwrap()).collect();
    latencies.sort();
    latencies
}

/// One row; `requests` is how many one measured step makes.
fn row(name: &str, callers: usize, requests: u32, latencies: &[Duration]) -> f64 {
    let micros = |percent: usize| {
        let at = (latencies.len() * percent / 100).min(latencies.len() - 1);
        latencies[at].as_secs_f64() * 1e6 / f64::from(requests)
    };
    let rate = latencies.len() as f64 * f64::from(requests) / ROW.as_secs_f64();
    println!(
        "{name:<44} {callers:>3} callers  p50 {:>8.1} us  p99 {:>8.1} us  {rate:>8.0} /s",
        micros(50),
        micros(99)
    );
    micros(50)
}

async fn native(client: &Client, url: &str, body: Option<&'static [u8]>) {
    let request = match body {
        Some(body) => Request::post(url).body(Full::new(Bytes::from_static(body))),
        None => Request::get(url).body(Full::default()),
    };
    let request = request.unwrap();
    let target = client.policy().decide(request.uri(), None).unwrap();
    let answer =
        client.send(request, &target, &Timeouts::default(), &Authorization::default()).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body().collect().await.unwrap();
}

async fn guest(host: &Host, probe: &ConnectorRef, op: &str, args: serde_json::Value) {
    host.call(probe, op, args).await.unwrap();
}

fn main() {
    let (home, signer, upstream) =
        (Home::with_compiler(Compiler::in_process()), Signer::new(), Upstream::start());
    home.trust(&signer.public(), "github://cofferdam/*");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(home.install(&guest_package("probe", &[upstream.grant()]), &signer)).unwrap();
    let host = home.builder().concurrency(256).allow_private(upstream.host_port()).build().unwrap();
    let probe = connector("github://cofferdam/probe@0.1.0");
    let grant = HostGrant::parse(&upstream.grant()).unwrap();
    let policy = Policy::new(&[grant], &[HostPort::parse(&upstream.host_port()).unwrap()]);
    let client = Client::new(default_tls([]).unwrap(), Arc::new(SystemResolver::default()), policy);
    let url = upstream.url("/text/hello");
    runtime.block_on(native(&client, &url, None));
    runtime.block_on(guest(&host, &probe, "fetch", json!({"url": url})));

    for callers in [1, 64] {
        let mut measured = Vec::new();
        for (name, body) in [("native GET", None), ("native POST of 100 bytes", Some(&[b'x'; 100][..]))] {
            let (client, url) = (client.clone(), url.clone());
            let latencies = load(&runtime, callers, move || {
                let (client, url) = (client.clone(), url.clone());
                async move { native(&client, &url, body).await }
            });
            measured.push(row(name, callers, 1, &latencies));
        }
        for (name, op, args, requests) in [
            ("guest GET, the whole call", "fetch", json!({"url": url}), 1),
            ("guest POST of 100 bytes, the whole call", "post_bytes", json!({"url": url, "bytes": 100}), 1),
            ("guest GET, one of 64 in a call", "fetch_many", json!({"url": url, "times": MANY}), MANY),
        ] {
            let (host, probe) = (host.clone(), probe.clone());
            let latencies = load(&runtime, callers, move || {
                let (host, probe, args) = (host.clone(), probe.clone(), args.clone());
                async move { guest(&host, &probe, op, args).await }
            });
            measured.push(row(name, callers, requests, &latencies));
        }
        println!(
            "GET, the whole call, over native: {:.2}; one of 64: {:.2}\n",
            measured[2] / measured[0],
            measured[4] / measured[0]
        );
    }
}
