;; Calls a function as one of another type.
;; expects: connector_runtime_error trap bad_signature
(core module $m
  (memory (export "memory") 1)
  (table funcref (elem $other))
  (func $other (param i64))
  (func (export "run") (result i32)
    (call_indirect (result i32) (i32.const 0))))
