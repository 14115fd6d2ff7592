//! Processes: programs that tests write, and what a process uses: resident memory, threads, open files.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Writes a program that only its owner may run, in place of what is at `path`.
///
/// A process of its own writes it: a file that this process has open for writing is also open in each process that
/// another test starts meanwhile, and then cannot be executed (`ETXTBSY`).
pub fn write_program(path: &Path, text: &str) {
    let write = r#"umask 077 && printf %s "$1" >"$2.new" && chmod 700 "$2.new" && mv "$2.new" "$2""#;
    assert!(Command::new("/bin/sh").args(["-c", write, "sh", text]).arg(path).status().unwrap().success());
}

/// A field of this process's status, as the number it starts with.
fn status(field: &str) -> u64 {
    status_of("self", field)
}

fn status_of(process: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Bytes of memory that are resident now.
#[must_use]
pub fn resident_bytes() -> u64 {
    status("VmRSS") * 1024
}

/// The most bytes that ever were resident.
#[must_use]
pub fn peak_resident_bytes() -> u64 {
    status("VmHWM") * 1024
}

/// The same of another process; 0 if there is none.
#[must_use]
pub fn peak_resident_bytes_of(process: u32) -> u64 {
    status_of(&process.to_string(), "VmHWM") * 1024
}

/// The memory of another process that is resident now, in bytes; 0 if there is none.
#[must_use]
pub fn resident_bytes_of(process: u32) -> u64 {
    status_of(&process.to_string(), "VmRSS") * 1024
}

/// The number of files that another process has open; 0 if there is none.
#[must_use]
pub fn open_files_of(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}

/// The processor time that another process has used until now, with its children that have ended; zero if there is none.
#[must_use]
pub fn processor_time_of(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, which may have spaces, is in parentheses. User and system time, and those of children.
    let times = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(4);
    let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
    // Linux tells programs a hundred ticks a second, whatever the kernel's own are.
    Duration::from_millis(ticks * 10)
}

/// Threads.
#[must_use]
pub fn threads() -> u64 {
    status("Threads")
}

/// Lets this process have as many open files as it may: both ends of thousands of connections are in it.
///
/// # Panics
/// If the limit cannot be raised to the hard one.
pub fn raise_open_files() {
    let hard = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard })
        .unwrap_or_else(|error| panic!("the limit on open files cannot be raised: {error}"));
}
