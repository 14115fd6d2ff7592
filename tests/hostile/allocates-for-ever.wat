;; Never finishes making room for the arguments.
;; expects: resource_limit_exceeded fuel
(core module $m
  (memory (export "memory") 1)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (loop $again (br $again)) (i32.const 0))
  (func (export "run") (param i32 i32) (result i32) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (param "text" string) (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory) (realloc (core func $i "realloc"))))
