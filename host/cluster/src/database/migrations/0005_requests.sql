-- The requests of each call, alike ones together: the connector that sent them (empty for the call's own), the host, the
-- number of their kind, and how many there are; the bytes of the largest response of each attempt; and an index to find the
-- calls under an idempotency key. What is derived from the entries is made again with them, so no row has to be changed.
TRUNCATE cofferdam.calls, cofferdam.indexed, cofferdam.operator_events, cofferdam.decided;
ALTER TABLE cofferdam.calls
    ADD COLUMN request_connectors text[] NOT NULL,
    ADD COLUMN request_hosts text[] NOT NULL,
    ADD COLUMN request_kinds bigint[] NOT NULL,
    ADD COLUMN request_counts bigint[] NOT NULL,
    ADD COLUMN largest_responses bigint[] NOT NULL;
CREATE INDEX calls_of_key ON cofferdam.calls (key) WHERE key IS NOT NULL;
