;; Drops a handle as if it were on a resource of another type.
;; expects: connector_runtime_error trap handle_misuse
;; words: handle index
(type $mine (resource (rep i32)))
(type $other (resource (rep i32)))
(core func $make (canon resource.new $mine))
(core func $drop (canon resource.drop $other))
(core module $m
  (import "host" "make" (func $make (param i32) (result i32)))
  (import "host" "drop" (func $drop (param i32)))
  (memory (export "memory") 1)
  (func (export "run") (result i32) (call $drop (call $make (i32.const 1))) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance
  (export "make" (func $make)) (export "drop" (func $drop))))))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
