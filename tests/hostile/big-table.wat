;; A table of ten million elements: eighty megabytes once it is filled.
;; expects: resource_limit_exceeded memory
(core module $m
  (memory (export "memory") 1)
  (table 10000000 funcref)
  (func (export "run") (result i32)
    (i32.const 0)))
