;; Returns a string that reaches outside its memory.
;; expects: connector_runtime_error output_malformed
;; words: string pointer/length out of bounds
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.store (i32.const 8) (i32.const 65530)) (i32.store (i32.const 12) (i32.const 100)) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result string (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
