;; Asks again and again whether a time has come.
;; expects: resource_limit_exceeded wall_time
(import "wasi:io/poll@0.2.0" (instance $poll
  (export "pollable" (type $p (sub resource)))
  (export "[method]pollable.ready" (func (param "self" (borrow $p)) (result bool)))
  (export "[method]pollable.block" (func (param "self" (borrow $p))))))
(alias export $poll "pollable" (type $pollable))
(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
  (alias outer 1 $pollable (type $p'))
  (export "pollable" (type $p (eq $p')))
  (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
(core func $subscribe (canon lower (func $clock "subscribe-duration")))
(core func $block (canon lower (func $poll "[method]pollable.block")))
(core func $ready (canon lower (func $poll "[method]pollable.ready")))
(core module $m
  (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
  (import "host" "block" (func $block (param i32)))
  (import "host" "ready" (func $ready (param i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (local $p i32)
    (local.set $p (call $subscribe (i64.const -1)))
    (loop $again (drop (call $ready (local.get $p))) (br $again)) (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance
  (export "subscribe" (func $subscribe)) (export "block" (func $block)) (export "ready" (func $ready))))))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
