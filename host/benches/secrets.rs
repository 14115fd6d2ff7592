//! The cost of the search for secrets: its preparation, a megabyte of body, and the headers of a request.
//!
//! `cargo bench --bench secrets`
#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;

use cofferdam_core::secret::{Scanner, Secret};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const MEGABYTE: usize = 1 << 20;

/// Keys as services hand them out: 40 characters, and a token of 900.
fn secrets(count: usize) -> Vec<Secret> {
    let key = |number: usize| format!("sk_live_{number:08}_4eC39HqLyjWDarjtT1zdp7dc");
    let keys = (0..count.saturating_sub(1)).map(key);
    keys.chain([format!("eyJhbGciOi.{}", "aZ09-_bY18".repeat(89))]).map(Secret::new).collect()
}

/// An answer as services give them: JSON with names, numbers and ids that look like keys.
fn json() -> Vec<u8> {
    let item = r#"{"id":"ch_3MmlLrLkdIwHu7ix0snN0B15","object":"charge","amount":1099,"currency":"usd","paid":true,"email":"jenny.rosen@example.com"},"#;
    item.bytes().cycle().take(MEGABYTE).collect()
}

fn search(c: &mut Criterion) {
    for count in [1, 2, 8] {
        let secrets = secrets(count);
        let name = |what: &str| format!("secrets/{what}/{count}");
        c.bench_function(&name("make"), |b| {
            b.iter_batched(|| (), |()| black_box(Scanner::new(&secrets)), BatchSize::SmallInput);
        });
        let scanner = Scanner::new(&secrets);
        let mut group = c.benchmark_group("secrets");
        group.throughput(Throughput::Bytes(MEGABYTE as u64));
        for (what, body) in [("json", json()), ("zeroes", vec![0; MEGABYTE])] {
            group.bench_function(format!("{what}/{count}"), |b| {
                b.iter(|| assert!(!scanner.finds(black_box(&body))));
            });
        }
        group.finish();
        let fields: [&[u8]; 6] = [
            b"application/json; charset=utf-8",
            b"req_1234567890abcdef",
            b"max-age=31556926; includeSubDomains; preload",
            b"Sun, 22 Nov 2026 05:00:00 GMT",
            b"no-cache, no-store",
            b"*",
        ];
        c.bench_function(&name("fields"), |b| {
            b.iter(|| fields.iter().any(|field| scanner.find_in_value(black_box(field)).is_some()));
        });
    }
}

criterion_group!(benches, search);
criterion_main!(benches);
