;; Carries names with escape sequences and line ends, for whoever prints a backtrace.
;; expects: connector_runtime_error trap unreachable
(core module $m
  (memory (export "memory") 1)
  (func $f (@name "\1b[31mEVIL\n2026 INFO all is well\07\u{202e}") unreachable)
  (func (export "run") (result i32)
    (call $f) (i32.const 0)))
