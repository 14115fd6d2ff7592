//! The types of the guest, as wasmtime's typed calls want them.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift, Lower};

#[derive(ComponentType, Lower, Lift, Serialize, Deserialize, Clone)]
#[component(record)]
pub(crate) struct Item {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) score: f64,
    pub(crate) active: bool,
    pub(crate) count: u32,
    pub(crate) note: Option<String>,
    pub(crate) kind: Kind,
}

#[derive(ComponentType, Lower, Lift, Serialize, Deserialize, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[component(name = "issue")]
    Issue,
    #[component(name = "task")]
    Task,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
pub(crate) struct Upstream {
    status: u16,
    code: Option<String>,
    #[component(name = "retry-after-ms")]
    retry_after_ms: Option<u64>,
    detail: Option<String>,
}

#[derive(ComponentType, Lift, Clone, Copy)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "the type of the guest")]
pub(crate) enum Phase {
    #[component(name = "dns")]
    Dns,
    #[component(name = "connect")]
    Connect,
    #[component(name = "tls")]
    Tls,
    #[component(name = "send")]
    Send,
    #[component(name = "response")]
    Response,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
pub(crate) struct Network {
    phase: Option<Phase>,
    detail: Option<String>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
pub(crate) struct Input {
    field: Option<String>,
    message: String,
    detail: Option<String>,
}

#[derive(ComponentType, Lift)]
#[component(record)]
#[allow(dead_code, reason = "the type of the guest")]
pub(crate) struct Failed {
    code: Option<String>,
    message: String,
    transient: bool,
    detail: Option<String>,
}

#[derive(ComponentType, Lift)]
#[component(variant)]
#[allow(dead_code, reason = "the type of the guest")]
pub(crate) enum Failure {
    #[component(name = "upstream")]
    Upstream(Upstream),
    #[component(name = "network")]
    Network(Network),
    #[component(name = "invalid-input")]
    InvalidInput(Input),
    #[component(name = "failed")]
    Failed(Failed),
}
