;; Calls itself without end.
;; expects: resource_limit_exceeded stack
(core module $m
  (memory (export "memory") 1)
  (func $deeper (param i32) (result i32)
    (i32.add (i32.const 1) (call $deeper (i32.add (local.get 0) (i32.const 1)))))
  (func (export "run") (result i32)
    (call $deeper (i32.const 0))))
