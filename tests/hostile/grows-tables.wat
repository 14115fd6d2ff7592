;; Grows a table to ten million elements, in one step.
;; expects: resource_limit_exceeded memory
(core module $m
  (memory (export "memory") 1)
  (table 1 funcref)
  (func (export "run") (result i32)
    (drop (table.grow (ref.null func) (i32.const 10000000))) (i32.const 0)))
