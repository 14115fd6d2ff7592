;; Lends one handle as often as a call has arguments, with no handle left.
;; expects: resource_limit_exceeded handles
;; words: cannot lend resource: store handle limit
(import "wasi:io/poll@0.2.0" (instance $poll
  (export "pollable" (type $p (sub resource)))
  (export "poll" (func (param "in" (list (borrow $p))) (result (list u32))))))
(alias export $poll "pollable" (type $pollable))
(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
  (alias outer 1 $pollable (type $p'))
  (export "pollable" (type $p (eq $p')))
  (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
(core module $memory
  (memory (export "memory") 2)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536)))
(core instance $mem (instantiate $memory))
(alias core export $mem "memory" (core memory $memory))
(alias core export $mem "realloc" (core func $realloc))
(core func $subscribe (canon lower (func $clock "subscribe-duration")))
(core func $poll' (canon lower (func $poll "poll") (memory $memory) (realloc $realloc)))
(core module $m
  (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
  (import "host" "poll" (func $poll (param i32 i32 i32)))
  (import "host" "memory" (memory 2))
  (func (export "run") (result i32)
    (local $p i32) (local $n i32)
    (local.set $p (call $subscribe (i64.const 0)))
    (loop $again
      (i32.store (i32.mul (local.get $n) (i32.const 4)) (local.get $p))
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $n) (i32.const 2000))))
    (call $poll (i32.const 0) (i32.const 2000) (i32.const 16000))
    (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance
  (export "subscribe" (func $subscribe)) (export "poll" (func $poll')) (export "memory" (memory $memory))))))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
