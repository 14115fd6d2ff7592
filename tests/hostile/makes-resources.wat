;; Makes handles on resources of its own, for ever.
;; expects: resource_limit_exceeded handles
;; words: cannot allocate another handle
(type $mine (resource (rep i32)))
(core func $make (canon resource.new $mine))
(core module $m
  (import "host" "make" (func $make (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (loop $again (drop (call $make (i32.const 1))) (br $again)) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance (export "make" (func $make))))))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
