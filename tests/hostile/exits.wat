;; Ends itself, and calls that a success.
;; expects: connector_runtime_error exit
(import "wasi:cli/exit@0.2.0" (instance $exit
  (export "exit" (func (param "status" (result))))))
(core func $exit' (canon lower (func $exit "exit")))
(core module $m
  (import "host" "exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func (export "run") (result i32) (call $exit (i32.const 0)) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance (export "exit" (func $exit'))))))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
