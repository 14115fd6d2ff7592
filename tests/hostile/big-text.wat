;; Returns five million characters, more than a result may have.
;; expects: resource_limit_exceeded payload
(core module $m
  (memory (export "memory") 80)
  (func (export "run") (result i32)
    (memory.fill (i32.const 64) (i32.const 97) (i32.const 5000000)) (i32.store (i32.const 8) (i32.const 64)) (i32.store (i32.const 12) (i32.const 5000000)) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result string (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
