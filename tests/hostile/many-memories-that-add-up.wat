;; Eight memories, each below the limit, together above it.
;; expects: resource_limit_exceeded memory
(core module $part (memory (export "memory") 160))
(core instance $p0 (instantiate $part))
(core instance $p1 (instantiate $part))
(core instance $p2 (instantiate $part))
(core instance $p3 (instantiate $part))
(core instance $p4 (instantiate $part))
(core instance $p5 (instantiate $part))
(core instance $p6 (instantiate $part))
(core module $m
  (memory (export "memory") 160)
  (func (export "run") (result i32)
    (i32.const 0)))
