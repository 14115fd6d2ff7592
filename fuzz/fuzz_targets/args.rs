//! Any JSON as the arguments of each operation of the package in `COFFERDAM_FUZZ_PACKAGE`, unsigned.
#![no_main]

use std::sync::LazyLock;

use cofferdam_core::limits::LimitRequest;
use cofferdam_model::package::Package;
use cofferdam::{Call, Compiler, ConnectorRef, Host, InstallOptions};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tokio::runtime::Runtime;

struct World {
    _home: TempDir,
    host: Host,
    runtime: Runtime,
    connector: ConnectorRef,
    operations: Vec<String>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let path = std::env::var("COFFERDAM_FUZZ_PACKAGE").expect("COFFERDAM_FUZZ_PACKAGE names a package");
    let bytes = std::fs::read(&path).expect("the package can be read");
    let package = Package::open(bytes.clone()).expect("a package");
    let manifest = package.manifest();
    let home = tempfile::tempdir().expect("a directory");
    let host = Host::builder().home(home.path()).compiler(Compiler::in_process()).build().expect("a host");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let options = InstallOptions::default().allow_unsigned().accept(*package.digest());
    runtime.block_on(host.install(bytes, None, options)).expect("the package installs");
    let connector = ConnectorRef::new(manifest.name().clone(), manifest.version().clone());
    let operations = package.operations().iter().map(|it| it.name().json().to_owned()).collect();
    World { _home: home, host, runtime, connector, operations }
});

fuzz_target!(|data: &[u8]| {
    let [which, json @ ..] = data else { return };
    let Ok(args) = serde_json::from_slice(json) else { return };
    let world = &*WORLD;
    let operation = &world.operations[usize::from(*which) % world.operations.len()];
    let limits = LimitRequest::parse(Some(20_000_000), Some("2s"), None).expect("limits");
    let call = Call::new(world.connector.clone(), operation, args).limits(limits).allow_unsigned();
    let _ = world.runtime.block_on(world.host.run(call));
});
