;; Has initial data outside its memory.
;; expects: connector_runtime_error trap memory_out_of_bounds
(core module $m
  (memory (export "memory") 1)
  (data (i32.const 65530) "0123456789")
  (func (export "run") (result i32)
    (i32.const 0)))
