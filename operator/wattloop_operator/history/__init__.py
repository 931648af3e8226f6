"""A job's history for users: read from a database or a cluster, as table, CSV and JSON."""
