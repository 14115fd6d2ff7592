//! Any bytes as a package, all the way: opened, installed unsigned, compiled in place, each operation called.
#![no_main]

use std::sync::LazyLock;

use cofferdam_core::limits::LimitRequest;
use cofferdam_model::package::Package;
use cofferdam::{Call, Compiler, ConnectorRef, Host, InstallOptions};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tokio::runtime::Runtime;

static WORLD: LazyLock<(TempDir, Host, Runtime)> = LazyLock::new(|| {
    let home = tempfile::tempdir().expect("a directory");
    let host = Host::builder().home(home.path()).compiler(Compiler::in_process()).build().expect("a host");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    (home, host, runtime)
});

fuzz_target!(|data: &[u8]| {
    let Ok(package) = Package::open(data.to_vec()) else { return };
    let (_, host, runtime) = &*WORLD;
    let options = InstallOptions::default().allow_unsigned().allow_downgrade().accept(*package.digest());
    if runtime.block_on(host.install(data.to_vec(), None, options)).is_err() {
        return;
    }
    let manifest = package.manifest();
    let connector = ConnectorRef::new(manifest.name().clone(), manifest.version().clone());
    let limits = LimitRequest::parse(Some(5_000_000), Some("1s"), Some("4MiB")).expect("limits");
    for operation in package.operations().iter().take(4) {
        let args = serde_json::json!({});
        let call = Call::new(connector.clone(), operation.name().json(), args).limits(limits).allow_unsigned();
        let _ = runtime.block_on(host.run(call));
    }
    host.remove(&connector).expect("what was installed can be removed");
});
