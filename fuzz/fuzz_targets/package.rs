//! Any bytes as a package: opened, its sections taken out and put back.
#![no_main]

use cofferdam_model::package::{ConnectorDocs, Package, embed, strip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(package) = Package::open(data.to_vec()) {
        let component = strip(data).expect("what opens can be stripped");
        let again = embed(&component, package.manifest().text(), &ConnectorDocs::default()).expect("and packed again");
        Package::open(again).expect("and opened again");
    }
});
