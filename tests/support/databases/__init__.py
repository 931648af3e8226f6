"""A PostgreSQL server and sample records."""
