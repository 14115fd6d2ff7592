;; Reads outside its memory.
;; expects: connector_runtime_error trap memory_out_of_bounds
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.load (i32.const 0x7fffffff))))
