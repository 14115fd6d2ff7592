;; Adds fields to a request for ever.
;; expects: resource_limit_exceeded request_headers
(import "wasi:http/types@0.2.0" (instance $http
  (export "fields" (type $fields (sub resource)))
  (type $error' (variant (case "invalid-syntax") (case "forbidden") (case "immutable")))
  (export "header-error" (type $error (eq $error')))
  (export "[constructor]fields" (func (result (own $fields))))
  (export "[method]fields.append" (func (param "self" (borrow $fields))
    (param "name" string) (param "value" (list u8)) (result (result (error $error)))))))
(core module $memory (memory (export "memory") 1) (data (i32.const 0) "name"))
(core instance $mem (instantiate $memory))
(alias core export $mem "memory" (core memory $memory))
(core func $fields (canon lower (func $http "[constructor]fields")))
(core func $append (canon lower (func $http "[method]fields.append") (memory $memory)))
(core module $m
  (import "host" "fields" (func $fields (result i32)))
  (import "host" "append" (func $append (param i32 i32 i32 i32 i32 i32)))
  (func (export "run") (result i32)
    (local $f i32)
    (local.set $f (call $fields))
    (loop $again
      (call $append (local.get $f) (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 4) (i32.const 1024))
      (br $again))
    (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance
  (export "fields" (func $fields)) (export "append" (func $append))))))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
