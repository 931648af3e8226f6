"""Alembic's entry: runs the migrations on the connection, and in the transaction, that `schema.py` hands over."""

from alembic import context

from wattloop_operator.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table="wattloop_migrations",
    # SQLite can undo CREATE TABLE too, once Python's module leaves transactions to us (see database.py).
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
