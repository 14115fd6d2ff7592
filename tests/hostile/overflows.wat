;; Divides the smallest number by minus one.
;; expects: connector_runtime_error trap integer_overflow
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.div_s (i32.const 0x80000000) (i32.const -1))))
