"""Checks the file of a database, and migrates it to this version's schema, under a lock and in one transaction.

Another program, a damaged disk or an attacker may have written the file.
"""

import logging
import threading
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic.dataclasses import dataclass
from sqlalchemy import Connection, delete, insert, inspect, select, text

from wattloop.errors import OperationError
from wattloop_operator.domain.record_fields import RECORD, Index, Name, StoredRecord
from wattloop_operator.store.database import DAMAGED, LOCK_WAIT_SECONDS, Database
from wattloop_operator.store.tables import (
    MARKER,
    METADATA,
    OBJECT_VERSION,
    OLDEST_SCHEMA_VERSION,
    PRODUCT,
    SCHEMA_VERSION,
)

if TYPE_CHECKING:
    from alembic.config import Config

logger = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
# Key of PostgreSQL's advisory lock: "wattloop" in ASCII as a 64-bit number.
ADVISORY_LOCK = int.from_bytes(PRODUCT.encode(), "big")
# Alembic's state is global to the process.
ALEMBIC_LOCK = threading.Lock()
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
PURPOSE = "migrate the database to this version's schema"


@dataclass(frozen=True, config=RECORD)
class Marker(StoredRecord):
    """The row that identifies a database.

    Attributes:
        product: The program that the database belongs to.
        schema_version: The version of its schema.
        compatible_from: The oldest schema version whose operator can use the database.
        product_version: The version of Wattloop that created or migrated the schema.

    Raises:
        InputError: A value is invalid.
    """

    source: ClassVar[str] = "table wattloop_database"

    product: Name
    schema_version: Index
    compatible_from: Index
    product_version: Name


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
        problem = str(on.exec_driver_sql("PRAGMA integrity_check(1)").scalar())
        if problem == "ok":
            orphan = on.exec_driver_sql("PRAGMA foreign_key_check").first()
            problem = f"row {orphan[1]} of table {orphan[0]} belongs to no row of {orphan[2]}" if orphan else ""
        if problem:
            raise OperationError(f"{database.name}: {problem}; {DAMAGED}")


def migrate(database: Database, *, create: bool = True) -> None:
    """Migrate the database to `SCHEMA_VERSION`; of several concurrent processes one does it.

    Args:
        database: The database.
        create: Whether to create the tables in an empty database; False raises an error for it.

    Raises:
        OperationError: The database belongs to another program, has a schema that this version
            cannot use, is empty and `create` is false, or failed. It is then unchanged.
    """
    with database.reading("identify the database") as on:
        marker = _own_marker(database.name, on)
    if marker is None and not create:
        raise OperationError(f"{database.name}: the database is empty; name a database that Wattloop has used")
    if marker is None or marker.schema_version < SCHEMA_VERSION:
        with database.writing(PURPOSE) as on:
            # On SQLite the write transaction is the lock.
            if not database.is_sqlite:
                on.execute(text(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'"))
                on.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            _upgrade(database.name, on)
    elif marker.schema_version > SCHEMA_VERSION:
        logger.warning(
            "%s: Wattloop %s created its schema %d, and this is Wattloop %s with schema %d: additions of the newer "
            "schema are ignored; upgrade Wattloop",
            database.name, marker.product_version, marker.schema_version, version("wattloop"), SCHEMA_VERSION,
        )  # fmt: skip
    if database.is_sqlite:
        _enable_write_ahead_log(database)


def read_marker(on: Connection) -> Marker | None:
    """The marker of the database, or None if it has none."""
    if not inspect(on).has_table(MARKER.name):
        return None
    columns = (MARKER.c.product, MARKER.c.schema_version, MARKER.c.compatible_from, MARKER.c.product_version)
    row = on.execute(select(*columns)).one_or_none()
    return None if row is None else Marker(*row)


def _own_marker(name: str, on: Connection) -> Marker | None:
    """The marker of a database that is Wattloop's; None if the database is empty."""
    # In this order, because another process may commit the tables and the marker between the two
    # statements.
    tables = inspect(on).get_table_names()
    marker = read_marker(on)
    if marker is None and tables:
        shown = ", ".join(sorted(tables)[:5]) + (", …" if len(tables) > 5 else "")
        raise OperationError(
            f"{name}: the database belongs to another program, which has the tables {shown}; "
            "name an empty database, or one of Wattloop"
        )
    if marker is not None and marker.product != PRODUCT:
        raise OperationError(f"{name}: the database belongs to {marker.product!r}; name an empty database")
    if marker is not None and marker.schema_version < OLDEST_SCHEMA_VERSION:
        raise OperationError(
            f"{name}: a development version of Wattloop created its schema {marker.schema_version}, and this version "
            f"upgrades schema {OLDEST_SCHEMA_VERSION} or newer; the database is unchanged: `wattloop history` of the "
            "version that created it prints its records; name an empty database, or move this one away"
        )
    if marker is not None and marker.compatible_from > SCHEMA_VERSION:
        raise OperationError(
            f"{name}: Wattloop {marker.product_version} created its schema {marker.schema_version}, which needs schema "
            f"{marker.compatible_from} or newer, and this is Wattloop {version('wattloop')} with "
            f"schema {SCHEMA_VERSION}; use Wattloop {marker.product_version} or newer"
        )
    return marker


def _upgrade(name: str, on: Connection) -> None:
    marker = _own_marker(name, on)
    if marker is not None and marker.schema_version >= SCHEMA_VERSION:
        return
    # Imported late: only the migration needs Alembic and its 12 MB.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = on
    with ALEMBIC_LOCK:
        if marker is None:
            # A table that exists is an error, since it is of another program.
            METADATA.create_all(on, checkfirst=False)
            on.execute(insert(OBJECT_VERSION).values(only_row=1, resource_version=0))
            command.stamp(config, "head")
        else:
            command.upgrade(config, "head")
    on.execute(delete(MARKER))
    on.execute(
        insert(MARKER).values(
            only_row=1,
            product=PRODUCT,
            schema_version=SCHEMA_VERSION,
            compatible_from=_compatible_from(config),
            product_version=version("wattloop"),
            migrated_at=datetime.now(UTC),
        )
    )


def _compatible_from(config: "Config") -> int:
    """Version of the last migration that is not additive, which an operator must know."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    revisions = ScriptDirectory.from_config(config).walk_revisions()
    return max(int(each.revision) for each in revisions if not getattr(each.module, "additive", False))


def _enable_write_ahead_log(database: Database) -> None:
    """Enable the write-ahead log, so that readers never wait; this needs an exclusive lock."""
    for tries_left in reversed(range(LOCK_WAIT_SECONDS * 20)):
        try:
            with database.without_transaction("set up the write-ahead log") as on:
                if on.exec_driver_sql("PRAGMA journal_mode").scalar_one() != "wal":
                    on.exec_driver_sql("PRAGMA journal_mode = WAL")
                return
        except OperationError as error:
            # SQLite reports this lock at once, regardless of the busy timeout.
            if "database is locked" not in str(error) or tries_left == 0:
                raise
            time.sleep(0.05)
