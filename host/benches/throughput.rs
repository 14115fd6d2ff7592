//! Many calls at once: calls a second and latency by callers and threads, how late deadlines are kept
//! while guests spin, and what a waiting call holds.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

mod floor;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam::{Call, Compiler, ConnectorRef, Error, Host};
use cofferdam_core::limits::LimitRequest;
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer, Upstream, connector, process};
use criterion::{BenchmarkId, Criterion, Throughput};
use floor::{Features, Floor};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

/// The duration of each row.
const ROW: Duration = Duration::from_millis(1_500);

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

async fn greet(host: &Host, hello: &ConnectorRef) {
    let greeting = host.call(hello, "greet", json!({"name": "Ada"})).await.unwrap();
    assert_eq!(greeting["length"], 14);
}

/// Latencies of `callers` that call again and again until the time is up, sorted.
fn load<C, F>(runtime: &Runtime, callers: usize, call: C) -> Vec<Duration>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let until = Instant::now() + ROW;
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let call = call.clone();
            runtime.spawn(async move {
                let mut latencies = Vec::new();
                while Instant::now() < until {
                    let start = Instant::now();
                    call().await;
                    latencies.push(start.elapsed());
                    tokio::task::yield_now().await;
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

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    floor::micros(sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)])
}

fn main() {
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let upstream = Upstream::start();
    let (package, probe) = (guest_package("hello", &[]), guest_package("probe", &[upstream.grant()]));
    let two = runtime(2);
    two.block_on(home.install(&package, &signer)).unwrap();
    two.block_on(home.install(&probe, &signer)).unwrap();
    let host = home.builder_alone().concurrency(1_000).allow_private(upstream.host_port()).build().unwrap();
    let hello = connector("github://cofferdam/hello@0.1.0");
    two.block_on(greet(&host, &hello));

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("64 calls of hello on 2 threads");
    group.throughput(Throughput::Elements(64));
    for callers in [1_usize, 8, 64] {
        group.bench_with_input(BenchmarkId::from_parameter(callers), &callers, |b, callers| {
            b.iter(|| {
                let each = 64 / callers;
                let tasks: Vec<_> = (0..*callers)
                    .map(|_| {
                        let (host, hello) = (host.clone(), hello.clone());
                        two.spawn(async move {
                            for _ in 0..each {
                                greet(&host, &hello).await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    two.block_on(task).unwrap();
                }
            });
        });
    }
    group.finish();
    criterion.final_summary();

    scaling(&host, &hello, &package);
    spinning(&two, &host);
    waiting(&two, &host, &upstream);
}

fn scaling(host: &Host, hello: &ConnectorRef, package: &[u8]) {
    println!("\ncalls of hello      threads callers   calls/s   p50 us   p99 us");
    let floor = Arc::new(Floor::new(package, &floor::best(), Features::default()));
    let mut rates = Vec::new();
    for threads in [1, 2] {
        let runtime = runtime(threads);
        for callers in [1, 8, 64] {
            let (host, hello) = (host.clone(), hello.clone());
            let through_host = load(&runtime, callers, move || {
                let (host, hello) = (host.clone(), hello.clone());
                async move { greet(&host, &hello).await }
            });
            let floor = Arc::clone(&floor);
            let bare = load(&runtime, callers, move || {
                let floor = Arc::clone(&floor);
                async move { assert_eq!(floor.call().await, 14) }
            });
            for (name, latencies) in [("wasmtime floor", &bare), ("Host::call", &through_host)] {
                let rate = latencies.len() as f64 / ROW.as_secs_f64();
                println!(
                    "  {name:<17} {threads:>7} {callers:>7} {rate:>9.0} {:>8.1} {:>8.1}",
                    percentile(latencies, 50),
                    percentile(latencies, 99)
                );
                rates.push((name, threads, callers, rate));
            }
        }
    }
    let rate = |name, threads| {
        rates.iter().find(|row| (row.0, row.1, row.2) == (name, threads, 8)).map_or(0.0, |row| row.3)
    };
    for name in ["wasmtime floor", "Host::call"] {
        println!(
            "  {name}: two threads do {:.2} times the work of one (8 callers)",
            rate(name, 2) / rate(name, 1)
        );
    }
}

/// 64 guests that never end, each to be stopped after 200 ms.
fn spinning(runtime: &Runtime, host: &Host) {
    const LIMIT: u64 = 200;
    let probe = connector("github://cofferdam/probe@0.1.0");
    for guests in [1, 64] {
        let tasks: Vec<_> = (0..guests)
            .map(|_| {
                let limits = LimitRequest::parse(Some(200_000_000_000), Some("200ms"), None).unwrap();
                let call = Call::new(probe.clone(), "spin", json!({})).limits(limits);
                let host = host.clone();
                runtime.spawn(async move {
                    match host.run(call).await.outcome {
                        Err(Error::Failure(failure)) => failure.details()["used"].as_u64().unwrap(),
                        other => unreachable!("it spins: {other:?}"),
                    }
                })
            })
            .collect();
        let mut late: Vec<u64> =
            tasks.into_iter().map(|task| runtime.block_on(task).unwrap().saturating_sub(LIMIT)).collect();
        late.sort_unstable();
        let p99 = late[(late.len() * 99 / 100).min(late.len() - 1)];
        println!(
            "\n{guests} spinning guests on 2 threads, {LIMIT} ms each: ended late by p50 {} ms, p99 {p99} ms",
            late[late.len() / 2]
        );
    }
}

/// 1,000 calls that wait for an answer that does not come.
fn waiting(runtime: &Runtime, host: &Host, upstream: &Upstream) {
    const CALLS: usize = 1_000;
    process::raise_open_files();
    let probe = connector("github://cofferdam/probe@0.1.0");
    let url = upstream.url("/hang");
    let start = |url: &str| {
        let (host, probe, args) = (host.clone(), probe.clone(), json!({"url": url}));
        runtime.spawn(async move { host.call(&probe, "fetch", args).await })
    };
    let warm = start(&upstream.url("/text/warm"));
    runtime.block_on(warm).unwrap().unwrap();
    let (before, threads) = (process::resident_bytes(), process::threads());
    let tasks: Vec<_> = (0..CALLS).map(|_| start(&url)).collect();
    while upstream.seen("/hang").len() < CALLS {
        std::thread::sleep(Duration::from_millis(20));
    }
    let each = process::resident_bytes().saturating_sub(before) / CALLS as u64;
    println!(
        "\n{CALLS} calls waiting on the network: {} KiB each, the server's side in this process included; {} threads more",
        each / 1024,
        process::threads().saturating_sub(threads)
    );
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}
