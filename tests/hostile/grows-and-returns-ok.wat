;; Is refused memory, ignores that, and claims success.
;; expects: resource_limit_exceeded memory
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (drop (memory.grow (i32.const 16000))) (i32.const 0)))
