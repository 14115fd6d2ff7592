;; Has one part hand another a string outside its memory.
;; expects: connector_runtime_error output_malformed
(component $Taker
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "take") (param i32 i32)))
  (core instance $i (instantiate $m))
  (func (export "take") (param "value" string)
    (canon lift (core func $i "take") (memory $i "memory") (realloc (func $i "realloc")))))
(instance $taker (instantiate $Taker))
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
  (import "take" (func $take (param "value" string)))
  (core module $libc (memory (export "memory") 1))
  (core instance $libc (instantiate $libc))
  (core func $take' (canon lower (func $take) (memory $libc "memory")))
  (core module $m
    (import "" "take" (func $take (param i32 i32)))
    (func (export "run") (result i32) (call $take (i32.const 65530) (i32.const 100)) (i32.const 0)))
  (core instance $i (instantiate $m (with "" (instance (export "take" (func $take'))))))
  (func (export "run") (result (result (error $failure)))
    (canon lift (core func $i "run") (memory $libc "memory"))))
(instance $giver (instantiate $Giver (with "phase" (type $phase)) (with "upstream" (type $upstream))
  (with "network" (type $network)) (with "input" (type $input)) (with "operation" (type $operation))
  (with "failure" (type $failure)) (with "take" (func $taker "take"))))
(export "run" (func $giver "run"))
