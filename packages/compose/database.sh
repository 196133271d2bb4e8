#!/bin/sh
# The service's own role and database. It is neither superuser nor above row-level security, or the
# second lock between tenants would be open.
set -eu
psql -v ON_ERROR_STOP=1 -v password="$POSTGRES_PASSWORD" --username postgres <<'SQL'
CREATE ROLE compaction LOGIN PASSWORD :'password';
CREATE DATABASE compaction OWNER compaction;
SQL
