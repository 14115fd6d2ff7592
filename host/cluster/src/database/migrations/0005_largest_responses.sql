-- The bytes of the largest response of each attempt. Attempts that an older version added have none until the table is made
-- again. A column of its own: to write all rows again would take longer than a host waits for the tables.
ALTER TABLE cofferdam.calls ADD COLUMN largest_responses bigint[] NOT NULL DEFAULT '{}';
