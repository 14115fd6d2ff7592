;; Gives a host function an option that is neither there nor not there.
;; expects: connector_runtime_error output_malformed
;; words: invalid option discriminant
(import "wasi:http/types@0.2.0" (instance $http
  (export "fields" (type $fields (sub resource)))
  (export "outgoing-request" (type $request (sub resource)))
  (export "[constructor]fields" (func (result (own $fields))))
  (export "[constructor]outgoing-request" (func (param "headers" (own $fields)) (result (own $request))))
  (export "[method]outgoing-request.set-authority" (func
    (param "self" (borrow $request)) (param "authority" (option string)) (result (result))))))
(core module $memory (memory (export "memory") 1))
(core instance $mem (instantiate $memory))
(alias core export $mem "memory" (core memory $memory))
(core func $fields (canon lower (func $http "[constructor]fields")))
(core func $request (canon lower (func $http "[constructor]outgoing-request")))
(core func $set (canon lower (func $http "[method]outgoing-request.set-authority") (memory $memory)))
(core module $m
  (import "host" "fields" (func $fields (result i32)))
  (import "host" "request" (func $request (param i32) (result i32)))
  (import "host" "set" (func $set (param i32 i32 i32 i32) (result i32)))
  (func (export "run") (result i32)
    (drop (call $set (call $request (call $fields)) (i32.const 9) (i32.const 0) (i32.const 0)))
    (i32.const 0)))
(core instance $i (instantiate $m (with "host" (instance
  (export "fields" (func $fields)) (export "request" (func $request)) (export "set" (func $set))))))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
