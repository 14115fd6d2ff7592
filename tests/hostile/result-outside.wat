;; Returns a pointer outside its memory.
;; expects: connector_runtime_error output_malformed
;; words: pointer out of bounds
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.const 0x7ffffff8)))
