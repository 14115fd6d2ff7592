;; Returns a result that is neither ok nor an error.
;; expects: connector_runtime_error output_malformed
;; words: discriminant
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.store8 (i32.const 0) (i32.const 7)) (i32.const 0)))
