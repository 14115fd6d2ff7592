;; Is refused memory and traps with something else.
;; expects: resource_limit_exceeded memory
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (if (i32.eq (memory.grow (i32.const 16000)) (i32.const -1)) (then unreachable)) (i32.const 0)))
