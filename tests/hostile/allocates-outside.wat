;; Says that the arguments are to be written outside its memory.
;; expects: connector_runtime_error output_malformed
;; words: realloc return:
(core module $m
  (memory (export "memory") 1)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0x7ffffff0))
  (func (export "run") (param i32 i32) (result i32) (i32.const 0)))
(core instance $i (instantiate $m))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (param "text" string) (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory) (realloc (core func $i "realloc"))))
