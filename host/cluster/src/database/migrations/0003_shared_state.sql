-- What the hosts of a cluster share besides the log. All times are those of this database's clock.

-- The theoretical arrival time of the next request, in microseconds since 1970 (GCRA).
CREATE TABLE cofferdam.rate_limits (
    connector text NOT NULL,
    host      text NOT NULL,
    tat       bigint NOT NULL,
    PRIMARY KEY (connector, host)
) WITH (fillfactor = 50);

-- Circuits that are not in their initial state. One host at a time may probe an open one.
CREATE TABLE cofferdam.circuits (
    connector   text NOT NULL,
    host        text NOT NULL,
    state       text NOT NULL,
    probe_by    uuid,
    probe_until timestamptz,
    PRIMARY KEY (connector, host)
) WITH (fillfactor = 50);

-- The newest tokens of each binding, sealed with a key of the cluster's hosts.
CREATE TABLE cofferdam.token_renewals (
    binding text PRIMARY KEY,
    sealed  bytea NOT NULL,
    expires timestamptz,
    changed timestamptz NOT NULL DEFAULT clock_timestamp()
);
