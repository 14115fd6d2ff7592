;; Starts with a memory of one gibibyte.
;; expects: resource_limit_exceeded memory
(core module $m
  (memory (export "memory") 16384)
  (func (export "run") (result i32)
    (i32.const 0)))
