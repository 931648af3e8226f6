"""The statements that create a new database, as files in `tests/operator/store/schemas`: what a migration starts from.

    PYTHONPATH=tests python -m support.databases.schema_snapshot   # writes those of the present SCHEMA_VERSION

The files of an older version stay as they are, and so does the schema of each released version.
"""

from pathlib import Path

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from wattloop_operator.store.tables import METADATA, SCHEMA_VERSION

FOLDER = Path(__file__).parents[2] / "operator" / "store" / "schemas"
DIALECTS = {"sqlite": sqlite.dialect(), "postgresql": postgresql.dialect()}  # type: ignore[no-untyped-call]


def snapshot(version: int, database: str) -> Path:
    """The file of a schema version, on one of `DIALECTS`."""
    return FOLDER / f"{version:04d}.{database}.sql"


def create_statements(database: str) -> list[str]:
    """The statements that create the tables of `tables.py`, each in one line."""
    elements = [
        element
        for table in METADATA.sorted_tables
        for element in (CreateTable(table), *map(CreateIndex, sorted(table.indexes, key=lambda index: str(index.name))))
        if database == "sqlite" or not str(element.element.name).endswith("_copy")
    ]
    return [" ".join(str(element.compile(dialect=DIALECTS[database])).split()) for element in elements]


if __name__ == "__main__":
    for name in DIALECTS:
        snapshot(SCHEMA_VERSION, name).write_text("".join(f"{each};\n" for each in create_statements(name)))
