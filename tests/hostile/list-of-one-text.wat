;; Returns a list of ten thousand texts of a mebibyte, which are all the same one.
;; expects: resource_limit_exceeded memory
(core module $m
  (memory (export "memory") 34)
  (func (export "run") (result i32) (local $at i32)
    (memory.fill (i32.const 131072) (i32.const 97) (i32.const 1048576))
    (loop $next
      (i32.store (i32.add (i32.const 64) (i32.mul (local.get $at) (i32.const 8))) (i32.const 131072))
      (i32.store (i32.add (i32.const 68) (i32.mul (local.get $at) (i32.const 8))) (i32.const 1048576))
      (br_if $next (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (i32.const 10000))))
    (i32.store (i32.const 8) (i32.const 64)) (i32.store (i32.const 12) (i32.const 10000)) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (list string) (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
