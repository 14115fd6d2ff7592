//! Any bytes as the index of installed packages, and as the record of removed versions.
#![no_main]

use std::sync::LazyLock;

use cofferdam::{Compiler, Host};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static HOME: LazyLock<(TempDir, Host)> = LazyLock::new(|| {
    let home = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(home.path().join("packages")).expect("a directory");
    let host = Host::builder().home(home.path()).compiler(Compiler::in_process()).build().expect("a host");
    (home, host)
});

fuzz_target!(|data: &[u8]| {
    let (home, host) = &*HOME;
    for file in ["index.json", "highest.json"] {
        std::fs::write(home.path().join("packages").join(file), data).expect("a file");
        let _ = host.list();
    }
});
