;; Has one part keep what another lends it for the time of a call.
;; expects: connector_runtime_error trap handle_misuse
;; words: borrow handles still remain
(import "wasi:io/poll@0.2.0" (instance $poll (export "pollable" (type $p (sub resource)))))
(alias export $poll "pollable" (type $pollable))
(import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
  (alias outer 1 $pollable (type $p'))
  (export "pollable" (type $p (eq $p')))
  (export "subscribe-duration" (func (param "when" u64) (result (own $p))))))
(alias export $clock "subscribe-duration" (func $subscribe))
(component $Taker
  (import "pollable" (type $p (sub resource)))
  (core module $m (func (export "take") (param i32)))
  (core instance $i (instantiate $m))
  (func (export "take") (param "value" (borrow $p)) (canon lift (core func $i "take"))))
(instance $taker (instantiate $Taker (with "pollable" (type $pollable))))
(component $Giver
  (type $text (option string))
  (type $p' (enum "dns" "connect" "tls" "send" "response"))
  (import "phase" (type $phase (eq $p')))
  (type $u' (record
    (field "status" u16) (field "code" $text) (field "retry-after-ms" (option u64)) (field "detail" $text)))
  (import "upstream" (type $upstream (eq $u')))
  (type $n' (record (field "phase" (option $phase)) (field "detail" $text)))
  (import "network" (type $network (eq $n')))
  (type $i' (record (field "field" $text) (field "message" string) (field "detail" $text)))
  (import "input" (type $input (eq $i')))
  (type $o' (record
    (field "code" $text) (field "message" string) (field "transient" bool) (field "detail" $text)))
  (import "operation" (type $operation (eq $o')))
  (type $f' (variant
    (case "upstream" $upstream) (case "network" $network) (case "invalid-input" $input) (case "failed" $operation)))
  (import "failure" (type $failure (eq $f')))
  (import "pollable" (type $p (sub resource)))
  (import "subscribe" (func $subscribe (param "when" u64) (result (own $p))))
  (import "take" (func $take (param "value" (borrow $p))))
  (core module $libc (memory (export "memory") 1))
  (core instance $libc (instantiate $libc))
  (core func $take' (canon lower (func $take)))
  (core func $subscribe' (canon lower (func $subscribe)))
  (core module $m
    (import "" "take" (func $take (param i32)))
    (import "" "subscribe" (func $subscribe (param i64) (result i32)))
    (func (export "run") (result i32) (call $take (call $subscribe (i64.const 0))) (i32.const 0)))
  (core instance $i (instantiate $m (with "" (instance
    (export "take" (func $take')) (export "subscribe" (func $subscribe'))))))
  (func (export "run") (result (result (error $failure)))
    (canon lift (core func $i "run") (memory $libc "memory"))))
(instance $giver (instantiate $Giver (with "phase" (type $phase)) (with "upstream" (type $upstream))
  (with "network" (type $network)) (with "input" (type $input)) (with "operation" (type $operation))
  (with "failure" (type $failure)) (with "pollable" (type $pollable)) (with "subscribe" (func $subscribe))
  (with "take" (func $taker "take"))))
(export "run" (func $giver "run"))
