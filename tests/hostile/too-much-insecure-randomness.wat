;; Asks for more bytes of the insecure kind than a host call gives.
;; expects: resource_limit_exceeded host_transfer
(import "wasi:random/insecure@0.2.0" (instance $random
  (export "get-insecure-random-bytes" (func (param "len" u64) (result (list u8))))))
(core module $memory
  (memory (export "memory") 4)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536)))
(core instance $mem (instantiate $memory))
(alias core export $mem "memory" (core memory $memory))
(alias core export $mem "realloc" (core func $realloc))
(core func $get (canon lower (func $random "get-insecure-random-bytes") (memory $memory) (realloc $realloc)))
(core module $m
  (import "host" "get" (func $get (param i64 i32)))
  (func (export "run") (result i32)
    (call $get (i64.const 65537) (i32.const 0))
    (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance (export "get" (func $get))))))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
