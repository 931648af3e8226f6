"""The versions of the schema: a database of each is migrated to the tables that a new database gets."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from support.databases.schema_snapshot import DIALECTS, create_statements, snapshot
from wattloop_operator.store import open_store
from wattloop_operator.store.address import database_url as address
from wattloop_operator.store.schema import MIGRATIONS
from wattloop_operator.store.tables import METADATA, OLDEST_SCHEMA_VERSION, SCHEMA_VERSION

# Named columns, since a later version may add others.
OLDER_ROWS = (
    "CREATE TABLE wattloop_migrations (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",
    "INSERT INTO wattloop_migrations VALUES ('{version:04d}')",
    "INSERT INTO object_version (only_row, resource_version) VALUES (1, 7)",
    (
        "INSERT INTO wattloop_database"
        " (only_row, product, schema_version, compatible_from, product_version, migrated_at)"
        " VALUES (1, 'wattloop', {version}, {version}, '0.1.0', '2026-11-01 12:00:00')"
    ),
    "INSERT INTO late_usages (job_uid, recurrence, attempt, energy_joules, time_seconds) VALUES ('uid', 1, 0, 5, 6)",
)


def assert_tables_are_those_of_the_code(url: str) -> None:
    engine = create_engine(address(url))
    try:
        with engine.connect() as on:
            options = {
                "version_table": "wattloop_migrations",
                "compare_type": True,
                # SQLite alone has them.
                "include_object": lambda _, name, *__: on.dialect.name == "sqlite" or not str(name).endswith("_copy"),
            }
            assert compare_metadata(MigrationContext.configure(on, opts=options), METADATA) == []
    finally:
        engine.dispose()


def test_a_new_database_has_exactly_the_tables_that_the_code_uses(database_url: str) -> None:
    open_store(database_url).close()
    assert_tables_are_those_of_the_code(database_url)


@pytest.mark.parametrize("schema_version", range(OLDEST_SCHEMA_VERSION, SCHEMA_VERSION + 1))
def test_a_migrated_database_has_the_tables_of_a_new_one_and_its_rows(database_url: str, schema_version: int) -> None:
    url = address(database_url)
    statements = snapshot(schema_version, url.get_backend_name()).read_text().splitlines()
    engine = create_engine(url)
    with engine.begin() as on:
        for statement in (*statements, *OLDER_ROWS):
            on.execute(text(statement.format(version=schema_version)))
    engine.dispose()
    with open_store(database_url) as store:
        assert [usage.energy_joules for usage in store.late_usages.of_job("uid")] == [5.0]
        assert store.objects.create("FrequencyPlan", "team", "plan", {}).resource_version == 8
    assert_tables_are_those_of_the_code(database_url)


@pytest.mark.parametrize("database", DIALECTS)
def test_a_change_of_the_tables_has_a_schema_version(database: str) -> None:
    """If it fails: add a migration, raise SCHEMA_VERSION, and write the snapshot of that version."""
    recorded = snapshot(SCHEMA_VERSION, database).read_text().splitlines()
    assert recorded == [f"{statement};" for statement in create_statements(database)]


def test_each_schema_version_has_one_migration() -> None:
    scripts = ScriptDirectory(str(MIGRATIONS))
    found = [int(script.revision) for script in scripts.walk_revisions()]
    assert found == list(range(SCHEMA_VERSION, OLDEST_SCHEMA_VERSION - 1, -1))
