"""Migrations: a file a schema version, run by `wattloop_operator.store.schema` and by nothing else."""
