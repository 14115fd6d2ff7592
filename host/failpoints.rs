//! The build script of the crates with fail points: sets the cfg `cofferdam_failpoints` in unoptimised builds of this
//! repository. A cfg and not a feature: features unify, so that any dependent could switch them on.
#![allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]

use std::env;

pub(crate) fn main() {
    println!("cargo::rerun-if-env-changed=COFFERDAM_BUILD_FAILPOINTS");
    println!("cargo::rustc-check-cfg=cfg(cofferdam_failpoints)");
    let is_dev = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    if is_dev && env::var_os("COFFERDAM_BUILD_FAILPOINTS").is_some() {
        println!("cargo::rustc-cfg=cofferdam_failpoints");
    }
}
