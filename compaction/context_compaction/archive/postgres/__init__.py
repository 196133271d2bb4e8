"""The archive in a PostgreSQL database, for several machines and tenants (extra `postgres`)."""
