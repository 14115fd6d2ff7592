-- The requests of each call, alike ones together: the connector that sent them (empty for the call's own), the host, the
-- number of their kind, and how many there are. And the bytes of the largest response of each attempt. Calls that an older
-- version added have neither until the table is made again: to write all rows again would take longer than a host waits
-- for the tables.
ALTER TABLE cofferdam.calls
    ADD COLUMN request_connectors text[] NOT NULL DEFAULT '{}',
    ADD COLUMN request_hosts text[] NOT NULL DEFAULT '{}',
    ADD COLUMN request_kinds bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN request_counts bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN largest_responses bigint[] NOT NULL DEFAULT '{}';
