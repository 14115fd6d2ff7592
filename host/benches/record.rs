//! The cost of the audit log for a call: calls with it against calls with a log that is thrown away, in one run.
//!
//! The floor is a host whose log answers every command at once and keeps nothing: what a call takes beyond that
//! is the cost of the audit log. That host seals nothing; a second one seals. Several callers share writes; how
//! many there are decides what a call pays.
//!
//! A keyed call has a key of its own each time, so that it claims and ends a key in the table that processes share.
//!
//! `power` has a floor of its own: the same bytes, appended to two files with an `fdatasync` of each, twice a call, once
//! for all callers.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cofferdam::{Call, Compiler, ConnectorRef, Host};
use cofferdam_audit::Durability;
use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{DiscardLog, Home, Signer, connector};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const CALLS: usize = 6_000;
const ROUNDS: usize = 5;
const CALLERS: [usize; 3] = [1, 8, 64];

async fn greet(host: &Host, hello: &ConnectorRef, keyed: bool) {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let mut call = Call::from_text(hello.clone(), "greet", json!({"name": "Ada"}).to_string());
    if keyed {
        call = call.idempotency_key(format!("key-{}", KEYS.fetch_add(1, Ordering::Relaxed)));
    }
    std::hint::black_box(host.run_text(call).await.outcome.unwrap());
}

/// The time of `CALLS` calls by so many callers at once, for each call.
fn each(runtime: &Runtime, host: &Host, hello: &ConnectorRef, callers: usize, keyed: bool) -> Duration {
    runtime.block_on(async {
        let mut all = JoinSet::new();
        let start = Instant::now();
        for _ in 0..callers {
            let (host, hello) = (host.clone(), hello.clone());
            all.spawn(async move {
                for _ in 0..CALLS / callers {
                    greet(&host, &hello, keyed).await;
                }
            });
        }
        all.join_all().await;
        start.elapsed() / u32::try_from(CALLS).unwrap()
    })
}

/// The bytes of lines and of sealed parts that a call adds to the journals of a home that only had such calls.
fn bytes_of_a_call(home: &Home, calls: usize) -> [usize; 2] {
    // A journal without calls has no sealed parts.
    let length = |path: PathBuf| path.metadata().map_or(0, |file| usize::try_from(file.len()).unwrap());
    ["jsonl", "sealed"].map(|ending| {
        let files = home.segments().into_iter().map(|segment| segment.with_extension(ending));
        files.map(length).sum::<usize>() / calls
    })
}

/// The time for each call if the writes of so many callers are done at once: sealed parts, then lines, twice a call.
fn bare_power(dir: &Path, [lines, sealed]: [usize; 2], callers: usize) -> Duration {
    let file = |name| File::create(dir.join(name)).unwrap();
    let (mut files, rounds) = ([file("sealed"), file("lines")], CALLS / callers / 10);
    let parts = [sealed, lines].map(|bytes| vec![b'x'; bytes * callers / 2]);
    let start = Instant::now();
    for _ in 0..2 * rounds {
        for (file, part) in files.iter_mut().zip(&parts) {
            file.write_all(part).unwrap();
            file.sync_data().unwrap();
        }
    }
    start.elapsed() / u32::try_from(rounds * callers).unwrap()
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let (home, signer) = (Home::with_compiler(Compiler::in_process()), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let package = guest_package("hello", &[]);
    runtime.block_on(home.install(&package, &signer)).unwrap();
    let hello = connector("github://cofferdam/hello@0.1.0");
    let builder = || home.builder_alone().concurrency(64);
    // Each writes on the threads of its callers; with `power`, on threads for blocking work.
    let hosts = [
        (
            "thrown away, unsealed",
            builder().audit_log(Arc::new(DiscardLog)).keep_results(false).build().unwrap(),
        ),
        ("thrown away", builder().audit_log(Arc::new(DiscardLog)).build().unwrap()),
        ("process", builder().build().unwrap()),
        ("power", builder().durability(Durability::Power).build().unwrap()),
    ];
    each(&runtime, &hosts[2].1, &hello, 1, false);
    let bytes = bytes_of_a_call(&home, CALLS);
    for callers in CALLERS {
        let (mut best, mut bare, mut keyed) = ([Duration::MAX; 4], Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            bare = bare_power(home.path(), bytes, callers).min(bare);
            for ((_, host), best) in hosts.iter().zip(&mut best) {
                *best = each(&runtime, host, &hello, callers, false).min(*best);
            }
            keyed = each(&runtime, &hosts[2].1, &hello, callers, true).min(keyed);
        }
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let floor = best.first().copied().map(us).unwrap_or_default();
        for ((name, _), best) in hosts.iter().zip(best) {
            let (own, calls) = (us(best), 1e6 / us(best));
            println!(
                "{callers:2} callers, {name:22} {own:8.1} us a call, {calls:8.0} a second, {:.2} x",
                own / floor
            );
        }
        let (process, keyed) = (us(best[2]), us(keyed));
        println!(
            "{callers:2} callers, process, with a key     {keyed:8.1} us a call, {:.2} x one without",
            keyed / process
        );
        let (power, bare) = (us(best[3]), us(bare));
        println!(
            "{callers:2} callers, bare append, fdatasync {bare:6.1} us a call, power {:.2} x",
            power / bare
        );
    }
}
