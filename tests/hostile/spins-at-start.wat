;; Never finishes starting: its start function loops, before any operation is called.
;; expects: resource_limit_exceeded fuel
(core module $m
  (memory (export "memory") 1)
  (func $start (loop $again (br $again)))
  (start $start)
  (func (export "run") (result i32)
    (i32.const 0)))
