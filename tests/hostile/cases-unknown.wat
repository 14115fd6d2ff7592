;; Returns a list with a case that its type does not have.
;; expects: connector_runtime_error output_malformed
(core module $m
  (memory (export "memory") 1)
  (data (i32.const 64) "\00\07")
  (func (export "run") (result i32)
    (i32.store (i32.const 8) (i32.const 64)) (i32.store (i32.const 12) (i32.const 2)) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (list $phase) (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
