;; Divides by zero.
;; expects: connector_runtime_error trap integer_division_by_zero
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.div_s (i32.const 1) (i32.const 0))))
