;; Has a part of it call back into the whole, which no component may.
;; expects: connector_runtime_error trap cannot_enter_component
(core module $inner (func (export "f")))
(core instance $ii (instantiate $inner))
(func $f (canon lift (core func $ii "f")))
(component $Child
  (import "f" (func $f))
  (core func $f' (canon lower (func $f)))
  (core module $m (import "" "f" (func $f)) (func (export "g") (call $f)))
  (core instance $i (instantiate $m (with "" (instance (export "f" (func $f'))))))
  (func (export "g") (canon lift (core func $i "g"))))
(instance $child (instantiate $Child (with "f" (func $f))))
(core func $g (canon lower (func $child "g")))
(core module $m
  (import "" "g" (func $g))
  (memory (export "memory") 1)
  (func (export "run") (result i32) (call $g) (i32.const 0)))
(core instance $i (instantiate $m (with "" (instance (export "g" (func $g))))))
(alias core export $i "memory" (core memory $memory))
(func (export "run") (result (result (error $failure)))
  (canon lift (core func $i "run") (memory $memory)))
