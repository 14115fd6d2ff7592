;; Calls an import while it makes room for its arguments, which no component may.
;; expects: connector_runtime_error trap cannot_leave_component
(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock (export "now" (func (result u64)))))
(core func $now (canon lower (func $clock "now")))
(core module $m
  (import "host" "now" (func $now (result i64)))
  (memory (export "memory") 1)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32)
    (drop (call $now)) (i32.const 1024))
  (func (export "run") (param i32 i32) (result i32) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance (export "now" (func $now))))))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (param "text" string) (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory) (realloc (core func $i "realloc"))))
