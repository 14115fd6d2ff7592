;; Traps while it starts.
;; expects: connector_runtime_error trap unreachable
(core module $m
  (memory (export "memory") 1)
  (func $start unreachable)
  (start $start)
  (func (export "run") (result i32)
    (i32.const 0)))
