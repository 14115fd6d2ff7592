;; Has one part hand another a character that Unicode does not have.
;; expects: connector_runtime_error output_malformed
(component $Taker
  (core module $m
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
    (func (export "take") (param i32)))
  (core instance $i (instantiate $m))
  (func (export "take") (param "value" char)
    (canon lift (core func $i "take") (memory $i "memory") (realloc (func $i "realloc")))))
(instance $taker (instantiate $Taker))
(component $Giver
  (alias outer 1 $failure (type $f))
  (import "failure" (type $failure' (eq $f)))
  (import "take" (func $take (param "value" char)))
  (core module $libc (memory (export "memory") 1))
  (core instance $libc (instantiate $libc))
  (core func $take' (canon lower (func $take) (memory $libc "memory")))
  (core module $m
    (import "" "take" (func $take (param i32)))
    (func (export "run") (result i32) (call $take (i32.const 0xd800)) (i32.const 0)))
  (core instance $i (instantiate $m (with "" (instance (export "take" (func $take'))))))
  (func (export "run") (result (result (error $failure')))
    (canon lift (core func $i "run") (memory $libc "memory"))))
(instance $giver (instantiate $Giver (with "failure" (type $failure)) (with "take" (func $taker "take"))))
(export "run" (func $giver "run"))
