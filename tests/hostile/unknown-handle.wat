;; Drops a handle that it never had.
;; expects: connector_runtime_error trap handle_misuse
;; words: unknown handle index
(type $mine (resource (rep i32)))
(core func $drop (canon resource.drop $mine))
(core module $m
  (import "host" "drop" (func $drop (param i32)))
  (memory (export "memory") 1)
  (func (export "run") (result i32) (call $drop (i32.const 7)) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance (export "drop" (func $drop))))))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
