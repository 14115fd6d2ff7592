;; Waits for a list of events that lies outside its memory.
;; expects: connector_runtime_error output_malformed
;; words: list pointer/length out of bounds
(import "wasi:io/poll@0.2.0" (instance $poll
  (export "pollable" (type $p (sub resource)))
  (export "poll" (func (param "in" (list (borrow $p))) (result (list u32))))))
(core module $memory
  (memory (export "memory") 2)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536)))
(core instance $mem (instantiate $memory))
(alias core export $mem "memory" (core memory $memory))
(alias core export $mem "realloc" (core func $realloc))
(core func $poll' (canon lower (func $poll "poll") (memory $memory) (realloc $realloc)))
(core module $m
  (import "host" "poll" (func $poll (param i32 i32 i32)))
  (func (export "run") (result i32)
    (call $poll (i32.const 8) (i32.const 0x1fffffff) (i32.const 64)) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance (export "poll" (func $poll'))))))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
