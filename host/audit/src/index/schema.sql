-- The first version of the record. Never edited: what comes after it is a version of its own.

-- The chain: append-only. `prev` is the entry of the same call before it (0: none), so that a call is found without an
-- index of its own; the chain itself goes by `n`. `sealed` is beside the chain: it may be dropped and the chain holds.
CREATE TABLE entries (
  n      INTEGER PRIMARY KEY,
  prev   INTEGER NOT NULL,
  body   TEXT NOT NULL,
  hash   BLOB NOT NULL,
  sealed BLOB
) STRICT;

-- Signed statements about the chain: `kind` is `head` (so many entries, this hash) or `base` (those up to here were
-- pruned).
CREATE TABLE checkpoints (
  n    INTEGER NOT NULL,
  kind TEXT NOT NULL,
  note TEXT NOT NULL,
  PRIMARY KEY (n, kind)
) STRICT, WITHOUT ROWID;

-- The hosts that write; each holds a lock on `running/<name>` while it lives.
CREATE TABLE owners (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

-- What is called, and how calls end: few, so that calls are small and are found by one index each.
CREATE TABLE routes (
  id        INTEGER PRIMARY KEY,
  connector TEXT NOT NULL,
  op        TEXT NOT NULL,
  action    TEXT NOT NULL DEFAULT '',
  step      TEXT NOT NULL DEFAULT '',
  UNIQUE (connector, op, action, step)
) STRICT;
CREATE TABLE verdicts (
  id     INTEGER PRIMARY KEY,
  status INTEGER NOT NULL,
  class  TEXT NOT NULL DEFAULT '',
  code   TEXT NOT NULL DEFAULT '',
  UNIQUE (status, class, code)
) STRICT;
-- 0 and 1 are what nearly all calls have.
INSERT INTO verdicts (id, status) VALUES (0, 0), (1, 1);

-- A view of the chain, one row a call, that can be made anew from it. Ids are time-ordered, so `id` is the order of
-- calls. Times are in microseconds.
CREATE TABLE calls (
  id         BLOB PRIMARY KEY,
  at         INTEGER NOT NULL,
  route      INTEGER NOT NULL,
  actor      TEXT NOT NULL,
  idempotent INTEGER NOT NULL,
  owner      INTEGER NOT NULL,
  first      INTEGER NOT NULL,
  last       INTEGER NOT NULL,
  verdict    INTEGER NOT NULL,
  duration   INTEGER,
  attempts   INTEGER,
  key        TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_of_route ON calls (route, id);
CREATE INDEX calls_open ON calls (id) WHERE verdict = 0;
CREATE INDEX calls_of_verdict ON calls (verdict, id) WHERE verdict > 1;
CREATE INDEX calls_by_verdict ON calls (verdict, route, id) WHERE verdict > 1;

-- How many calls ended how, and how long they took: a view of `calls`, of the ids below `upto` in `rolled`. A row is a
-- span of so many seconds (an hour, a day) from `start` in which calls were received;
-- `durations` counts them by length (audit/histogram.rs).
CREATE TABLE rollup (
  span      INTEGER NOT NULL,
  start     INTEGER NOT NULL,
  route     INTEGER NOT NULL,
  verdict   INTEGER NOT NULL,
  calls     INTEGER NOT NULL,
  durations BLOB NOT NULL,
  PRIMARY KEY (span, start, route, verdict)
) STRICT, WITHOUT ROWID;
CREATE TABLE rolled (
  one  INTEGER PRIMARY KEY CHECK (one = 0),
  upto BLOB NOT NULL
) STRICT;
INSERT INTO rolled (one, upto) VALUES (0, zeroblob(16));

-- Keys that callers gave. `state`: 0 running, 1 its outcome stands, 2 what it did is unknown, 3 that is decided: nobody
-- ever runs under it.
CREATE TABLE keys (
  key         TEXT PRIMARY KEY,
  fingerprint BLOB NOT NULL,
  call        BLOB NOT NULL,
  state       INTEGER NOT NULL,
  until       INTEGER
) STRICT, WITHOUT ROWID;
