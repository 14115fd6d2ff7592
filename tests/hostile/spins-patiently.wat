;; Never returns, with more fuel than the time allows to burn.
;; expects: resource_limit_exceeded wall_time
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (loop $again (br $again)) (i32.const 0)))
