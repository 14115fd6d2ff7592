;; Traps at once.
;; expects: connector_runtime_error trap unreachable
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    unreachable))
