-- The schema of this program, what was made in it, and the cluster that it belongs to.
CREATE SCHEMA IF NOT EXISTS cofferdam;

CREATE TABLE cofferdam.migrations (
    name text PRIMARY KEY,
    at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row: the public key of the signatures of the cluster's hosts.
CREATE TABLE cofferdam.cluster (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    identity text NOT NULL
);

-- A database that was restored from a dump has other numbers than the one that the dump was made of.
CREATE FUNCTION cofferdam.incarnation() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT d.oid || '/' || 'cofferdam.cluster'::regclass::oid FROM pg_database d WHERE d.datname = current_database()
$$;
ALTER TABLE cofferdam.cluster ADD COLUMN incarnation text NOT NULL DEFAULT cofferdam.incarnation();
