;; Returns a list of two thousand million numbers.
;; expects: connector_runtime_error output_malformed
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.store (i32.const 8) (i32.const 64)) (i32.store (i32.const 12) (i32.const 0x7fffffff)) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (list u64) (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
