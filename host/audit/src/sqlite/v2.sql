-- The second version: how many bytes are sealed, for whom. `calls.sealed` are those beside the entries of the call;
-- the two tables are their sums by client, and in all.
ALTER TABLE calls ADD COLUMN sealed INTEGER NOT NULL DEFAULT 0;
UPDATE calls SET sealed =
  ifnull((SELECT length(entries.sealed) FROM entries WHERE entries.n = calls.first), 0)
  + ifnull((SELECT length(entries.sealed) FROM entries WHERE entries.n = calls.last AND calls.last <> calls.first), 0);
CREATE INDEX calls_sealed ON calls (actor, id) WHERE sealed > 0;
CREATE TABLE sealed_by_client (
  client TEXT PRIMARY KEY,
  bytes  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO sealed_by_client SELECT actor, sum(sealed) FROM calls WHERE sealed > 0 GROUP BY actor;
CREATE TABLE sealed_in_all (
  one   INTEGER PRIMARY KEY CHECK (one = 0),
  bytes INTEGER NOT NULL
) STRICT;
INSERT INTO sealed_in_all SELECT 0, ifnull(sum(bytes), 0) FROM sealed_by_client;
