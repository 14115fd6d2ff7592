;; Burns time in one instruction: filling memory, again and again.
;; expects: resource_limit_exceeded fuel
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (loop $again (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br $again)) (i32.const 0)))
