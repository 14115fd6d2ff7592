;; Wants a host function's result at an address that is not aligned.
;; expects: connector_runtime_error output_malformed
;; words: pointer not aligned
(import "wasi:clocks/wall-clock@0.2.0" (instance $clock
  (type $datetime' (record (field "seconds" u64) (field "nanoseconds" u32)))
  (export "datetime" (type $datetime (eq $datetime')))
  (export "now" (func (result $datetime)))))
(core module $memory (memory (export "memory") 1))
(core instance $mem (instantiate $memory))
(alias core export $mem "memory" (core memory $memory))
(core func $now (canon lower (func $clock "now") (memory $memory)))
(core module $m
  (import "host" "now" (func $now (param i32)))
  (func (export "run") (result i32) (call $now (i32.const 1)) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance (export "now" (func $now))))))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
