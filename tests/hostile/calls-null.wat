;; Calls an empty slot of its table.
;; expects: connector_runtime_error trap indirect_call_to_null
(core module $m
  (memory (export "memory") 1)
  (table 1 funcref)
  (func (export "run") (result i32)
    (call_indirect (result i32) (i32.const 0))))
