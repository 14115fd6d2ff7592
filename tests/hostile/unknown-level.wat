;; Hands the host a log line of a level that there is not.
;; expects: connector_runtime_error output_malformed
;; words: unexpected discriminant
(import "cofferdam:connector/log@0.1.0" (instance $log
  (type $level-def (enum "trace" "debug" "info" "warn" "error"))
  (export "level" (type $level (eq $level-def)))
  (type $field-def (record (field "key" string) (field "value" string)))
  (export "field" (type $field (eq $field-def)))
  (export "log" (func (param "level" $level) (param "message" string) (param "fields" (list $field))))))
(core module $memory (memory (export "memory") 1))
(core instance $mem (instantiate $memory))
(alias core export $mem "memory" (core memory $memory))
(core func $say (canon lower (func $log "log") (memory $memory)))
(core module $m
  (import "host" "say" (func $say (param i32 i32 i32 i32 i32)))
  (func (export "run") (result i32)
    (call $say (i32.const 99) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0))
    (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance (export "say" (func $say))))))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
