-- The audit log: the processes that write it, their journals, the keys, and what is derived from the journals.

-- By the name of a host, the home directory that it has.
CREATE TABLE cofferdam.hosts (
    name text PRIMARY KEY,
    home uuid NOT NULL
);

-- Each process has an advisory lock for as long as it is connected, and a lease that it renews.
CREATE TABLE cofferdam.processes (
    id          uuid PRIMARY KEY,
    host        text NOT NULL,
    lock        bigint NOT NULL,
    lease       interval NOT NULL,
    lease_until timestamptz NOT NULL,
    started     timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_released boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE FUNCTION cofferdam.is_held(lock bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (l.classid::bigint << 32) | l.objid::bigint = is_held.lock
    )
$$;

-- A process is gone if it said so; or if its lock is free and its lease has expired. After a start of the server all locks
-- are free and leases have expired: every process gets the time of a lease to come back.
CREATE FUNCTION cofferdam.has_expired(p cofferdam.processes) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT p.is_released OR (
        p.lease_until < clock_timestamp()
        AND pg_postmaster_start_time() + p.lease < clock_timestamp()
        AND NOT cofferdam.is_held(p.lock)
    )
$$;

-- The end of each journal, and the process that holds it. An append succeeds only in its holder's epoch, after exactly the
-- entry that the holder knows as the last one.
CREATE TABLE cofferdam.writers (
    name     uuid PRIMARY KEY,
    holder   uuid NOT NULL,
    epoch    bigint NOT NULL,
    n        bigint NOT NULL,
    hash     bytea NOT NULL,
    sealed   bigint NOT NULL,
    last_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- True if its last holder has left no call without an end: another process may go on with it.
    is_clean boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE cofferdam.entries (
    at     timestamptz NOT NULL,
    writer uuid NOT NULL,
    n      bigint NOT NULL,
    line   text NOT NULL,
    PRIMARY KEY (writer, n, at)
) PARTITION BY RANGE (at);

-- Sealed parts, by their place in the order of their journal's. What is encrypted cannot be compressed.
CREATE TABLE cofferdam.sealed (
    at     timestamptz NOT NULL,
    writer uuid NOT NULL,
    place  bigint NOT NULL,
    part   bytea NOT NULL,
    PRIMARY KEY (writer, place, at)
) PARTITION BY RANGE (at);
ALTER TABLE cofferdam.sealed ALTER part SET STORAGE EXTERNAL;

-- Idempotency keys by their SHA-256. States: 0 claimed, 1 retained, 2 undetermined, 3 blocked.
CREATE TABLE cofferdam.keys (
    key           bytea PRIMARY KEY,
    call          uuid NOT NULL,
    fingerprint   bytea NOT NULL,
    at            bigint NOT NULL,
    state         smallint NOT NULL,
    until         bigint,
    expires       timestamptz,
    writer        uuid NOT NULL,
    is_idempotent boolean NOT NULL,
    step_of       text,
    has_value     boolean NOT NULL DEFAULT false,
    outcome_at    timestamptz,
    outcome_place bigint,
    -- The key of the action of a step, until a run of the action has a value.
    action_key    bytea,
    is_action     boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);
CREATE INDEX keys_of_call ON cofferdam.keys (call);
CREATE INDEX keys_of_action ON cofferdam.keys (action_key) WHERE action_key IS NOT NULL;

-- The interrupted calls that were resumed or skipped: each of them once.
CREATE TABLE cofferdam.resolutions (
    call uuid PRIMARY KEY,
    by   uuid
);

-- Derived from the entries, and made again from them at any time.
CREATE TABLE cofferdam.calls (
    id              uuid PRIMARY KEY,
    writer          uuid NOT NULL,
    opened          timestamptz NOT NULL,
    last_at         timestamptz NOT NULL,
    places          bigint[] NOT NULL,
    first_n         bigint NOT NULL,
    at              bigint NOT NULL,
    connector       text NOT NULL,
    op              text NOT NULL,
    action          text NOT NULL,
    step            text NOT NULL,
    actor           text NOT NULL,
    is_idempotent   boolean NOT NULL,
    status          smallint NOT NULL,
    class           text NOT NULL,
    code            text NOT NULL,
    duration        bigint,
    attempts        integer,
    key             bytea,
    sealed          bigint NOT NULL,
    parts           bigint[] NOT NULL,
    is_undetermined boolean NOT NULL,
    ended_n         bigint,
    usage           bigint[] NOT NULL,
    hosts           text[] NOT NULL
);
CREATE INDEX calls_by_time ON cofferdam.calls (opened, first_n, id);
CREATE INDEX calls_open ON cofferdam.calls (writer) WHERE status = 0;
CREATE INDEX calls_ended ON cofferdam.calls (writer, ended_n);
CREATE INDEX calls_by_status ON cofferdam.calls (status, opened) WHERE status <> 1;
CREATE INDEX calls_of_connector ON cofferdam.calls (connector, opened);
CREATE INDEX calls_sealed ON cofferdam.calls (actor, opened) WHERE sealed > 0;

CREATE TABLE cofferdam.indexed (
    writer uuid PRIMARY KEY,
    n      bigint NOT NULL
);

CREATE TABLE cofferdam.operator_events (
    writer uuid NOT NULL,
    n      bigint NOT NULL,
    at     bigint NOT NULL,
    event  text NOT NULL,
    PRIMARY KEY (writer, n)
);

CREATE TABLE cofferdam.decided (
    call uuid PRIMARY KEY
);

-- The signed statement about all journals.
CREATE TABLE cofferdam.checkpoint (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    note text NOT NULL
);

-- What homes have found missing of the log, by the number of the entry. Until it is accepted, no host runs calls under keys.
CREATE TABLE cofferdam.losses (
    home        uuid NOT NULL,
    remembered  bigint NOT NULL,
    is_accepted boolean NOT NULL DEFAULT false,
    PRIMARY KEY (home, remembered)
);

-- The time that the log goes by, in microseconds since 1970, and when old calls were last removed.
CREATE TABLE cofferdam.log_time (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    seen     bigint,
    retained timestamptz
);
INSERT INTO cofferdam.log_time DEFAULT VALUES;

-- Appends entries to journals that a process holds, with the keys that they claim and end: all of it, or nothing. Returns
-- the time of the entries. Without `given`, it is the server's.
CREATE FUNCTION cofferdam.append_1(
    given timestamptz,
    process uuid,
    names uuid[], epochs bigint[], befores bigint[], afters bigint[], hashes bytea[], places bigint[],
    entry_writers uuid[], entry_ns bigint[], entry_lines text[],
    part_writers uuid[], part_places bigint[], parts bytea[],
    claim_keys bytea[], claim_calls uuid[], claim_fingerprints bytea[], claim_ats bigint[], claim_writers uuid[],
    claim_idempotent boolean[], claim_steps text[], claim_actions bytea[],
    end_keys bytea[], end_calls uuid[], end_states smallint[], end_untils bigint[], end_ttls bigint[],
    end_values boolean[], end_places bigint[]
) RETURNS timestamptz LANGUAGE plpgsql
-- A session keeps the plans that it made while the tables were empty: they have to be right for full ones.
SET enable_seqscan = off AS $$
DECLARE
    now timestamptz := coalesce(given, clock_timestamp());
    moved bigint;
    added bigint;
BEGIN
    UPDATE cofferdam.writers w SET n = c.after, hash = c.hash, sealed = c.place, last_at = now
    FROM unnest(names, epochs, befores, afters, hashes, places) AS c (name, epoch, before, after, hash, place)
    WHERE w.name = c.name AND w.holder = process AND w.epoch = c.epoch AND w.n = c.before;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> cardinality(names) THEN
        RAISE EXCEPTION 'another process has taken the journal' USING ERRCODE = 'CF001';
    END IF;
    IF cardinality(claim_keys) > 0 THEN
        INSERT INTO cofferdam.keys (key, call, fingerprint, at, state, writer, is_idempotent, step_of, action_key)
        SELECT c.key, c.call, c.fingerprint, c.at, 0, c.writer, c.is_idempotent, c.step_of, c.action_key
        FROM unnest(claim_keys, claim_calls, claim_fingerprints, claim_ats, claim_writers, claim_idempotent, claim_steps,
                    claim_actions)
            AS c (key, call, fingerprint, at, writer, is_idempotent, step_of, action_key)
        ORDER BY c.key;
        GET DIAGNOSTICS added = ROW_COUNT;
        IF added <> cardinality(claim_keys) THEN
            RAISE EXCEPTION 'the database did not keep the keys of a call' USING ERRCODE = 'CF002';
        END IF;
    END IF;
    INSERT INTO cofferdam.entries (at, writer, n, line)
    SELECT now, e.writer, e.n, e.line FROM unnest(entry_writers, entry_ns, entry_lines) AS e (writer, n, line);
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added <> cardinality(entry_lines) THEN
        RAISE EXCEPTION 'the database did not keep the entries of a call' USING ERRCODE = 'CF002';
    END IF;
    IF cardinality(parts) > 0 THEN
        INSERT INTO cofferdam.sealed (at, writer, place, part)
        SELECT now, s.writer, s.place, s.part FROM unnest(part_writers, part_places, parts) AS s (writer, place, part);
        GET DIAGNOSTICS added = ROW_COUNT;
        IF added <> cardinality(parts) THEN
            RAISE EXCEPTION 'the database did not keep the sealed parts of a call' USING ERRCODE = 'CF002';
        END IF;
    END IF;
    -- `= ANY`, so that each key is found by the index.
    IF -1 = ANY(end_states) THEN
        DELETE FROM cofferdam.keys k USING unnest(end_keys, end_calls, end_states) AS e (key, call, state)
        WHERE k.key = ANY(end_keys) AND k.key = e.key AND k.call = e.call AND e.state < 0;
    END IF;
    IF 0 <= ANY(end_states) THEN
        UPDATE cofferdam.keys k SET
            state = e.state, until = e.until, expires = now + e.ttl * interval '1 microsecond',
            has_value = e.has_value, outcome_place = e.place,
            outcome_at = CASE WHEN e.place IS NULL THEN NULL ELSE now END
        FROM unnest(end_keys, end_calls, end_states, end_untils, end_ttls, end_values, end_places)
            AS e (key, call, state, until, ttl, has_value, place)
        WHERE k.key = ANY(end_keys) AND k.key = e.key AND k.call = e.call AND e.state >= 0;
    END IF;
    -- The outcomes of an action's steps stand as long as others once it has a value, and no longer than that. With a longer
    -- time, a run that begins once the value has expired would get them, and do nothing.
    IF true = ANY(end_values) THEN
        UPDATE cofferdam.keys s SET action_key = NULL,
            expires = CASE WHEN s.expires > k.expires THEN k.expires ELSE s.expires END
        FROM cofferdam.keys k, unnest(end_keys, end_calls, end_values) AS e (key, call, has_value)
        WHERE s.action_key = ANY(end_keys) AND s.action_key = k.key AND k.key = ANY(end_keys) AND k.is_action
            AND k.key = e.key AND k.call = e.call AND e.has_value;
    END IF;
    RETURN now;
END
$$;
