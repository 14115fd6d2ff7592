;; Makes a whole number of NaN.
;; expects: connector_runtime_error trap bad_conversion_to_integer
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.trunc_f64_s (f64.const nan))))
