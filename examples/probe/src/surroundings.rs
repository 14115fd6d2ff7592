//! Looking around for what a sandbox should not have, and reading what it does.

use std::hint::black_box;
use std::io::Read as _;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use cofferdam_guest::wasi::random::random;

use crate::{Clocks, Surroundings};

pub(crate) fn look() -> Surroundings {
    let root = match std::fs::read_dir("/") {
        Ok(entries) => entries.flatten().map(|entry| entry.path().display().to_string()).collect(),
        Err(error) => vec![format!("error: {error}")],
    };
    let mut standard_input = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut standard_input) {
        standard_input = format!("error: {error}");
    }
    Surroundings {
        arguments: std::env::args().collect(),
        environment: std::env::vars().map(|(name, value)| format!("{name}={value}")).collect(),
        root,
        standard_input,
    }
}

pub(crate) fn clocks() -> Clocks {
    let start = Instant::now();
    for turn in 0..1000_u32 {
        black_box(turn);
    }
    let monotonic_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clocks { wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX), monotonic_ns }
}

pub(crate) fn random(bytes: u64) -> Vec<u8> {
    random::get_random_bytes(bytes)
}
