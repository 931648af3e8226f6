"""Checks a SQLite file that another program, a damaged disk or an attacker may have written, before it is read."""

from __future__ import annotations

from sqlalchemy import Connection

from wattloop.errors import OperationError
from wattloop_operator.store.database import DAMAGED, Database

# A view or a trigger runs its author's SQL, and a virtual table (which has no page) another program's code.
FOREIGN_OBJECT = """
SELECT CASE WHEN rootpage = 0 AND type = 'table' THEN 'virtual table' ELSE type END, name FROM sqlite_master
WHERE type NOT IN ('table', 'index') OR rootpage = 0 LIMIT 1
"""
GENERATED_COLUMN = """
SELECT 'generated column ' || columns.name || ' of table', tables.name
FROM sqlite_master AS tables, pragma_table_xinfo(tables.name) AS columns
WHERE tables.type = 'table' AND columns.hidden <> 0 LIMIT 1
"""


def check_file(database: Database) -> None:
    """Check that the file has only tables and their indices, and that every row is as it was written.

    SQLite's own check compares each row with its indices, one of which has all of it (`tables.py`). It is done
    before a migration, which would copy what is damaged.

    Raises:
        OperationError: It has something that runs its author's SQL, is damaged, or cannot be read. The message names
            the table and the number of a damaged row.
    """
    with database.reading("check the file") as on:
        for query in (FOREIGN_OBJECT, GENERATED_COLUMN):
            if found := on.exec_driver_sql(query).first():
                raise OperationError(
                    f"{database.name}: found {found[0]} {found[1]!r}, expected only tables, as Wattloop makes them; "
                    "another program changed the file: name another one"
                )
        if problem := _damage(on):
            raise OperationError(f"{database.name}: {problem}; {DAMAGED}")


def _damage(on: Connection) -> str:
    """The first damage that SQLite finds; empty for none."""
    found = str(on.exec_driver_sql("PRAGMA integrity_check(1)").scalar())
    if found != "ok":
        return found
    orphan = on.exec_driver_sql("PRAGMA foreign_key_check").first()
    return "" if orphan is None else f"row {orphan[1]} of table {orphan[0]} belongs to no row of {orphan[2]}"
