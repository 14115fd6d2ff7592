# Makes the role and the database of the hosts, once: PostgreSQL's image runs it in a new data directory, as its superuser.
# The role owns the database and is no superuser.
set -e
test -s /run/secrets/database.password
psql --no-psqlrc -v ON_ERROR_STOP=1 --username postgres --dbname postgres <<'SQL'
\set password `cat /run/secrets/database.password`
CREATE ROLE cofferdam LOGIN PASSWORD :'password';
CREATE DATABASE cofferdam OWNER cofferdam;
SQL
