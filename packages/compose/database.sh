#!/bin/sh
# Role and database of the service. The role is not a superuser and cannot bypass row-level security,
# which is the second protection between tenants.
set -eu
psql -v ON_ERROR_STOP=1 -v password="$POSTGRES_PASSWORD" --username postgres <<'SQL'
CREATE ROLE compaction LOGIN PASSWORD :'password';
CREATE DATABASE compaction OWNER compaction;
SQL
