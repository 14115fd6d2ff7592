;; Calls what is outside its table.
;; expects: connector_runtime_error trap table_out_of_bounds
(core module $m
  (memory (export "memory") 1)
  (table 1 funcref)
  (func (export "run") (result i32)
    (call_indirect (result i32) (i32.const 99))))
