//! `cofferdam call` as a process: from nothing to the printed value, with and without compiled code on disk.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a benchmark")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cofferdam_test_support::package::guest_package;
use cofferdam_test_support::{Home, Signer};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

fn call(home: &Path, connector: &str) {
    let status = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
        .args(["call", connector, "greet", r#"{"name": "Ada"}"#])
        .env_clear()
        .env("COFFERDAM_HOME", home)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

fn cold_start(criterion: &mut Criterion) {
    let (home, signer) = (Home::new(env!("CARGO_BIN_EXE_cofferdam")), Signer::new());
    home.trust(&signer.public(), "github://cofferdam/*");
    let install = async { home.install(&guest_package("hello", &[]), &signer).await };
    tokio::runtime::Runtime::new().unwrap().block_on(install).unwrap();
    let connector = "github://cofferdam/hello@0.1.0";
    let mut group = criterion.benchmark_group("cofferdam call, cold");
    group.sample_size(20).measurement_time(Duration::from_secs(20));
    call(home.path(), connector);
    group.bench_function("compiled code on disk", |b| b.iter(|| call(home.path(), connector)));
    group.bench_function("no compiled code", |b| {
        b.iter_batched(
            || std::fs::remove_dir_all(home.path().join("cache")).unwrap(),
            |()| call(home.path(), connector),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, cold_start);
criterion_main!(benches);
