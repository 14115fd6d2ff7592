-- Calls that wait for a person, and the answers. Each row has a MAC under a key of the cluster's hosts.
CREATE TABLE cofferdam.approvals (
    id             text PRIMARY KEY,
    exact          bytea NOT NULL,
    same_arguments bytea NOT NULL,
    is_waiting     boolean NOT NULL,
    -- The time of the log after which nothing depends on it, in microseconds since 1970.
    ends           bigint NOT NULL,
    bytes          bigint NOT NULL,
    value          text NOT NULL,
    arguments      text,
    mac            bytea NOT NULL
);
CREATE INDEX approvals_of_arguments ON cofferdam.approvals (same_arguments);
CREATE INDEX approvals_that_end ON cofferdam.approvals (ends);
CREATE INDEX approvals_that_wait ON cofferdam.approvals (bytes) WHERE is_waiting;
