;; Writes more zeroes to standard output at once than it takes.
;; expects: connector_runtime_error trap host_call_misuse
;; words: cannot write more zeroes
(import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
(alias export $error "error" (type $error-type))
(import "wasi:io/streams@0.2.0" (instance $streams
  (export "output-stream" (type $out (sub resource)))
  (alias outer 1 $error-type (type $e'))
  (export "error" (type $e (eq $e')))
  (type $stream-error' (variant (case "last-operation-failed" (own $e)) (case "closed")))
  (export "stream-error" (type $stream-error (eq $stream-error')))
  (export "[method]output-stream.write-zeroes" (func
    (param "self" (borrow $out)) (param "len" u64) (result (result (error $stream-error)))))))
(alias export $streams "output-stream" (type $output))
(import "wasi:cli/stdout@0.2.0" (instance $stdout
  (alias outer 1 $output (type $o'))
  (export "output-stream" (type $o (eq $o')))
  (export "get-stdout" (func (result (own $o))))))
(core module $memory (memory (export "memory") 2))
(core instance $mem (instantiate $memory))
(alias core export $mem "memory" (core memory $memory))
(core func $get (canon lower (func $stdout "get-stdout")))
(core func $write (canon lower (func $streams "[method]output-stream.write-zeroes") (memory $memory)))
(core module $m
  (import "host" "get" (func $get (result i32)))
  (import "host" "write" (func $write (param i32 i64 i32)))
  (func (export "run") (result i32)
    (call $write (call $get) (i64.const 100000) (i32.const 100000)) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance
  (export "get" (func $get)) (export "write" (func $write))))))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
