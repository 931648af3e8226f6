"""Bringing a database to the schema of this version: under a lock, all of it or nothing, and only if it is ours."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, insert, inspect, select, text

from wattloop.errors import OperationError
from wattloop_operator.store.database import LOCK_WAIT_SECONDS, Database
from wattloop_operator.store.tables import MARKER, PRODUCT, SCHEMA_VERSION

if TYPE_CHECKING:
    from alembic.config import Config

logger = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
# The key of PostgreSQL's advisory lock: "wattloop" in ASCII, read as one 64-bit number.
ADVISORY_LOCK = int.from_bytes(PRODUCT.encode(), "big")
# Alembic keeps what it is at work on in module globals.
ONE_AT_A_TIME = threading.Lock()
PURPOSE = "bring the database to this version's schema"


@dataclass(frozen=True)
class Marker:
    """What a database says of itself.

    Attributes:
        product: The program that the database belongs to.
        schema_version: Its schema.
        compatible_from: The oldest schema version whose operator can work with it.
        product_version: The version of Wattloop that made the schema.
    """

    product: str
    schema_version: int
    compatible_from: int
    product_version: str


def migrate(database: Database, *, create: bool = True) -> None:
    """Bring the database to `SCHEMA_VERSION`; two processes that start at once do it once.

    Args:
        database: The database; its tables are made where it is empty.
        create: Whether an empty database is to be filled; otherwise it is refused.

    Raises:
        OperationError: It belongs to another program, a newer Wattloop made a schema that this one cannot use, it is
            empty and `create` is false, or it failed. It is then as it was.
    """
    with database.reading("read whose database it is") as on:
        marker = _own_marker(database.name, on)
    if marker is None and not create:
        raise OperationError(f"{database.name}: the database is empty; name one that Wattloop has run with")
    if marker is None or marker.schema_version < SCHEMA_VERSION:
        with database.writing(PURPOSE) as on:
            _wait_for_others(database, on)
            _upgrade(database.name, on)
    elif marker.schema_version > SCHEMA_VERSION:
        logger.warning(
            "%s: Wattloop %s made its schema %d, and this is Wattloop %s with schema %d: what the newer schema adds is "
            "left alone; upgrade when you can",
            database.name, marker.product_version, marker.schema_version, version("wattloop"), SCHEMA_VERSION,
        )  # fmt: skip
    if database.is_sqlite:
        _keep_write_ahead_log(database)


def read_marker(on: Connection) -> Marker | None:
    """The marker of the database, or None where there is none."""
    if not inspect(on).has_table(MARKER.name):
        return None
    columns = (MARKER.c.product, MARKER.c.schema_version, MARKER.c.compatible_from, MARKER.c.product_version)
    row = on.execute(select(*columns)).one_or_none()
    return None if row is None else Marker(*row)


def _own_marker(name: str, on: Connection) -> Marker | None:
    """The marker of a database that is ours; None where it is empty."""
    # In this order: another process may make our tables and the marker, at one stroke, between the two statements.
    tables = inspect(on).get_table_names()
    marker = read_marker(on)
    if marker is None and tables:
        shown = ", ".join(sorted(tables)[:5]) + (", …" if len(tables) > 5 else "")
        raise OperationError(
            f"{name}: this database is not Wattloop's: it has tables of another program ({shown}); "
            "name an empty database, or one that Wattloop made"
        )
    if marker is not None and marker.product != PRODUCT:
        raise OperationError(
            f"{name}: this database is not Wattloop's but {marker.product!r}'s; name an empty database"
        )
    if marker is not None and marker.compatible_from > SCHEMA_VERSION:
        raise OperationError(
            f"{name}: Wattloop {marker.product_version} made its schema {marker.schema_version}, which operators with "
            f"schema {marker.compatible_from} or newer can work with, and this is Wattloop {version('wattloop')} with "
            f"schema {SCHEMA_VERSION}; use Wattloop {marker.product_version} or newer"
        )
    return marker


def _wait_for_others(database: Database, on: Connection) -> None:
    # SQLite's writing transaction is the lock already.
    if not database.is_sqlite:
        on.execute(text(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'"))
        on.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})


def _upgrade(name: str, on: Connection) -> None:
    marker = _own_marker(name, on)
    if marker is not None and marker.schema_version >= SCHEMA_VERSION:
        return
    # Of many starts one changes the schema; the others do without Alembic's 12 MB.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = on
    with ONE_AT_A_TIME:
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


def _compatible_from(config: Config) -> int:
    """The schema version of the last migration that is not additive: an operator must know that one, and no later."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    revisions = ScriptDirectory.from_config(config).walk_revisions()
    return max(int(each.revision) for each in revisions if not getattr(each.module, "additive", False))


def _keep_write_ahead_log(database: Database) -> None:
    """Readers then never wait for the writer. The file remembers it; to change it, nobody else may hold a lock."""
    for tries_left in reversed(range(LOCK_WAIT_SECONDS * 20)):
        try:
            with database.without_transaction("set up the write-ahead log") as on:
                if on.exec_driver_sql("PRAGMA journal_mode").scalar_one() != "wal":
                    on.exec_driver_sql("PRAGMA journal_mode = WAL")
                return
        except OperationError as error:
            # SQLite reports this one lock at once, whatever the time it was told to wait.
            if "database is locked" not in str(error) or tries_left == 0:
                raise
            time.sleep(0.05)
