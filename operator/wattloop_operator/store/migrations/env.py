"""Alembic's environment: runs the migrations in the transaction of `schema.py`."""

from alembic import context

from wattloop_operator.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table="wattloop_migrations",
    # SQLite can roll back CREATE TABLE, because database.py begins transactions explicitly.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
