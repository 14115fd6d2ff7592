;; Returns a failure of a kind that there is not.
;; expects: connector_runtime_error output_malformed
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.store8 (i32.const 0) (i32.const 1)) (i32.store8 (i32.const 8) (i32.const 9)) (i32.const 0)))
