;; Returns two million truths: as bytes a small thing, as JSON values in the host's memory not.
;; expects: resource_limit_exceeded memory
(core module $m
  (memory (export "memory") 40)
  (func (export "run") (result i32)
    (i32.store (i32.const 8) (i32.const 64)) (i32.store (i32.const 12) (i32.const 2000000)) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (list bool) (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
