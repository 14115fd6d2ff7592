//! wasmtime alone: the floor that calls through the host are compared with.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasmtime::component::{Component, InstancePre, Lift, Linker, Lower};
use wasmtime::{Config, Enabled, Engine, PoolingAllocationConfig, Store};

use crate::types::{Failure, Item};

/// wasmtime alone: a pool, typed functions, no limits.
pub(crate) struct Typed {
    engine: Engine,
    pre: InstancePre<()>,
}

impl Typed {
    pub(crate) fn new(component: &[u8]) -> Self {
        let mut pool = PoolingAllocationConfig::new();
        pool.linear_memory_keep_resident(4 << 20)
            .table_keep_resident(1 << 20)
            .total_memories(64)
            .total_core_instances(64)
            .total_component_instances(64)
            .total_stacks(64)
            .pagemap_scan(Enabled::Auto);
        let mut config = Config::new();
        config.allocation_strategy(pool).concurrency_support(false);
        let engine = Engine::new(&config).unwrap();
        let component = Component::from_binary(&engine, component).unwrap();
        let pre = Linker::new(&engine).instantiate_pre(&component).unwrap();
        Self { engine, pre }
    }

    /// Typed values in and out.
    async fn call<T: Lower + Lift + Send + Sync + 'static>(&self, op: &str, it: Vec<T>) -> Vec<T> {
        let mut store = Store::new(&self.engine, ());
        let instance = self.pre.instantiate_async(&mut store).await.unwrap();
        let function =
            instance.get_typed_func::<(Vec<T>,), (Result<Vec<T>, Failure>,)>(&mut store, op).unwrap();
        match function.call_async(&mut store, (it,)).await.unwrap().0 {
            Ok(it) => it,
            Err(_) => unreachable!("the guest gives back what it is given"),
        }
    }

    /// JSON text in and out.
    pub(crate) async fn json<T>(&self, op: &str, text: &str) -> String
    where
        T: Lower + Lift + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let it: Vec<T> = serde_json::from_str(text).unwrap();
        serde_json::to_string(&self.call(op, it).await).unwrap()
    }

    pub(crate) async fn base64(&self, text: &str) -> String {
        let it: String = serde_json::from_str(text).unwrap();
        let it = self.call("bytes", STANDARD.decode(it).unwrap()).await;
        serde_json::to_string(&STANDARD.encode(it)).unwrap()
    }

    /// JSON text in and out, by the types of an operation.
    pub(crate) async fn text(&self, op: &str, text: &str) -> String {
        match op {
            "items" => self.json::<Item>(op, text).await,
            "texts" => self.json::<String>(op, text).await,
            _ => self.base64(text).await,
        }
    }
}
