-- The index of the journals. Everything in it can be made again from them.

-- The journals, and how far each is in the index. `base` is the first segment whose calls are in it. The last line that
-- was read begins at `last_start` of `segment` and ends before `place`; `seen` is the length of the file at that time.
CREATE TABLE writers (
  id         INTEGER PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  base       INTEGER NOT NULL,
  segment    INTEGER NOT NULL,
  place      INTEGER NOT NULL,
  seen       INTEGER NOT NULL,
  last_start INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  hash       BLOB NOT NULL,
  last_seq   INTEGER NOT NULL
) STRICT;

-- What many calls have in common, so that calls are small.
CREATE TABLE targets (
  id        INTEGER PRIMARY KEY,
  connector TEXT NOT NULL,
  op        TEXT NOT NULL,
  action    TEXT NOT NULL,
  step      TEXT NOT NULL,
  UNIQUE (connector, op, action, step)
) STRICT;
-- `boundary` is the layer that a failure came from.
CREATE TABLE outcomes (
  id       INTEGER PRIMARY KEY,
  status   INTEGER NOT NULL,
  class    TEXT NOT NULL,
  code     TEXT NOT NULL,
  boundary TEXT NOT NULL,
  UNIQUE (status, class, code, boundary)
) STRICT;
-- 0 is a call without an end, and 1 is what nearly all others have: a value.
INSERT INTO outcomes (id, status, class, code, boundary) VALUES (0, 0, '', '', ''), (1, 1, '', '', '');
-- `sealed` is the sum over the actor's calls.
CREATE TABLE actors (
  id     INTEGER PRIMARY KEY,
  name   TEXT NOT NULL UNIQUE,
  sealed INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The calls. `seq` is the order of the log. Times are in microseconds. `key` is the SHA-256 of an idempotency key,
-- `sealed` the number of sealed bytes. `is_undetermined`: it is unknown what was done under the key. `places` are those
-- of the call's lines, `usage` what its attempts used and their requests.
CREATE TABLE calls (
  seq             INTEGER PRIMARY KEY,
  id              BLOB NOT NULL,
  at              INTEGER NOT NULL,
  target          INTEGER NOT NULL,
  outcome         INTEGER NOT NULL,
  actor           INTEGER NOT NULL,
  writer          INTEGER NOT NULL,
  idempotent      INTEGER NOT NULL,
  duration        INTEGER,
  attempts        INTEGER,
  key             BLOB,
  sealed          INTEGER NOT NULL,
  is_undetermined INTEGER NOT NULL,
  places          BLOB NOT NULL,
  usage           BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX calls_by_id ON calls (id);
CREATE INDEX calls_of_target ON calls (target);
CREATE INDEX calls_open ON calls (outcome) WHERE outcome = 0;
CREATE INDEX calls_of_outcome ON calls (outcome) WHERE outcome > 1;
CREATE INDEX calls_by_outcome ON calls (outcome, target) WHERE outcome > 1;
CREATE INDEX calls_sealed ON calls (actor) WHERE sealed > 0;
CREATE INDEX calls_of_key ON calls (key) WHERE key IS NOT NULL;

-- The hosts of requests.
CREATE TABLE hosts (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

-- The least and the greatest difference between `seq` and `at` of any call.
CREATE TABLE skew (
  one   INTEGER PRIMARY KEY CHECK (one = 0),
  least INTEGER NOT NULL,
  most  INTEGER NOT NULL
) STRICT;
INSERT INTO skew (one, least, most) VALUES (0, 0, 0);

-- The calls about whose undetermined keys the operator decided.
CREATE TABLE decided (call BLOB PRIMARY KEY) STRICT, WITHOUT ROWID;

-- The approvals that calls used up. They stay when their calls are pruned.
CREATE TABLE used_approvals (approval TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- The number of calls that ended, and their durations and usage: those that were received in a span of so many seconds
-- (an hour, a day, 32 days) from `start`. With a host, those that had requests to it; without (0), all of them. `durations` is a
-- histogram, `usage` several. Rows of 32 days have no usage, and there are none of hosts.
CREATE TABLE rollup (
  is_of_host INTEGER NOT NULL,
  span       INTEGER NOT NULL,
  start      INTEGER NOT NULL,
  target     INTEGER NOT NULL,
  outcome    INTEGER NOT NULL,
  actor      INTEGER NOT NULL,
  host       INTEGER NOT NULL,
  calls      INTEGER NOT NULL,
  durations  BLOB NOT NULL,
  usage      BLOB NOT NULL,
  PRIMARY KEY (is_of_host, span, start, target, outcome, actor, host)
) STRICT, WITHOUT ROWID;

-- The number of requests of ended calls in a span, as above, by the target that sent them, their host and their kind.
CREATE TABLE request_rollup (
  span     INTEGER NOT NULL,
  start    INTEGER NOT NULL,
  target   INTEGER NOT NULL,
  host     INTEGER NOT NULL,
  kind     INTEGER NOT NULL,
  requests INTEGER NOT NULL,
  PRIMARY KEY (span, start, target, host, kind)
) STRICT, WITHOUT ROWID;

-- The changes that operators made, by the number of the entry. Times are in microseconds, `event` is JSON.
CREATE TABLE operator_events (
  writer INTEGER NOT NULL,
  n      INTEGER NOT NULL,
  at     INTEGER NOT NULL,
  event  TEXT NOT NULL,
  PRIMARY KEY (writer, n)
) STRICT, WITHOUT ROWID;
