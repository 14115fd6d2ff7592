;; More tables than a component may have.
;; expects: resource_limit_exceeded tables
(core module $part (table 1 funcref) (table 1 funcref) (table 1 funcref) (table 1 funcref))
(core instance $p0 (instantiate $part))
(core instance $p1 (instantiate $part))
(core instance $p2 (instantiate $part))
(core instance $p3 (instantiate $part))
(core instance $p4 (instantiate $part))
(core instance $p5 (instantiate $part))
(core instance $p6 (instantiate $part))
(core instance $p7 (instantiate $part))
(core instance $p8 (instantiate $part))
(core module $m
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (i32.const 0)))
