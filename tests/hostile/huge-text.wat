;; Returns twenty million characters, more than crosses into the host at once.
;; expects: resource_limit_exceeded host_transfer
;; words: too much data is being copied
(core module $m
  (memory (export "memory") 310)
  (func (export "run") (result i32)
    (i32.store (i32.const 8) (i32.const 64)) (i32.store (i32.const 12) (i32.const 20000000)) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result string (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
