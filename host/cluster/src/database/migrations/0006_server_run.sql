-- The run of the server in which a process was last seen, and since when. Each start, recovery from a crash and
-- failover begins another one: with a start of the server, a reset of its statistics, or a timeline of its own.
CREATE FUNCTION cofferdam.current_run() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT concat_ws('/', extract(epoch FROM pg_postmaster_start_time()),
        left(pg_walfile_name(pg_current_wal_lsn()), 8),
        (SELECT extract(epoch FROM stats_reset) FROM pg_stat_bgwriter))
$$;

CREATE TABLE cofferdam.server_run (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    run   text NOT NULL DEFAULT cofferdam.current_run(),
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO cofferdam.server_run DEFAULT VALUES;

-- As before, but for the time in which processes may come back: as a run begins, all locks are free and leases may
-- have expired. The start of the server alone does not tell it.
CREATE OR REPLACE FUNCTION cofferdam.has_expired(p cofferdam.processes) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT p.is_released OR (
        p.lease_until < clock_timestamp()
        AND EXISTS (
            SELECT FROM cofferdam.server_run r
            WHERE r.run = cofferdam.current_run() AND r.since + p.lease < clock_timestamp()
        )
        AND NOT cofferdam.is_held(p.lock)
    )
$$;
