;; Never returns.
;; expects: resource_limit_exceeded fuel
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (loop $again (br $again)) (i32.const 0)))
