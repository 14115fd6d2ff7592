;; Calls an import after it has returned, which no component may.
;; expects: connector_runtime_error trap cannot_leave_component
(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock (export "now" (func (result u64)))))
(core func $now (canon lower (func $clock "now")))
(core module $m
  (import "host" "now" (func $now (result i64)))
  (memory (export "memory") 1)
  (func (export "run") (result i32) (i32.const 0))
  (func (export "after") (param i32) (drop (call $now))))
(core instance $i (instantiate $m (with "host" (instance (export "now" (func $now))))))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory) (post-return (core func $i "after"))))
