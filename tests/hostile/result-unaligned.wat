;; Returns a pointer that is not aligned.
;; expects: connector_runtime_error output_malformed
;; words: return pointer not aligned
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.const 1)))
