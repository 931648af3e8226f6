"""Migrations: one file per schema version, run by `wattloop_operator.store.schema`."""
