"""One open database: its transactions, and its failures said so that the reader can mend them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from wattloop import interruption
from wattloop.errors import OperationError
from wattloop_operator.store.address import described, without_secrets

# How long a writer waits for another's lock: far longer than any transaction of ours takes.
LOCK_WAIT_SECONDS = 30
CONNECT_WAIT_SECONDS = 10
# A wait for SQLite's lock is cut into waits of this length, with a safe point after each.
LOCK_SAFE_POINT_SECONDS = 0.2
# Execution option: how SQLite is to begin a transaction on a connection.
BEGIN = "wattloop_begin"
BEGIN_WRITING = "BEGIN IMMEDIATE"


class Database:
    """An engine whose transactions are short, typed as reading or writing, and whose errors are `OperationError`.

    Safe to use from several threads: each transaction has a connection of its own.
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self.name = described(url)
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self._engine = _sqlite_engine(url) if self.is_sqlite else _postgresql_engine(url)

    @contextlib.contextmanager
    def reading(self, purpose: str) -> Iterator[Connection]:
        """A transaction that only reads. `purpose` completes "cannot …" in errors.

        Raises:
            OperationError: The database failed.
        """
        with self._failures_named(purpose), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, purpose: str) -> Iterator[Connection]:
        """A transaction that writes: durable when the block has ended, undone when it raises.

        On SQLite it takes the writer's lock at once, so that it never fails half-way because another wrote first.

        Raises:
            OperationError: The database failed.
            wattloop.interruption.Interrupted: The program was asked to end while another held SQLite's lock.
        """
        with (
            self._failures_named(purpose),
            self._engine.execution_options(**{BEGIN: BEGIN_WRITING}).begin() as connection,
        ):
            yield connection

    @contextlib.contextmanager
    def without_transaction(self, purpose: str) -> Iterator[Connection]:
        """A connection to SQLite on which every statement stands for itself, for what a transaction does not allow."""
        with self._failures_named(purpose), self._engine.execution_options(**{BEGIN: ""}).connect() as connection:
            yield connection

    def insert(self, table: Table) -> Any:
        """An INSERT that can say ON CONFLICT, in the words of this database."""
        # Only the dialect in use, which the engine has imported already.
        if self.is_sqlite:
            from sqlalchemy.dialects import sqlite  # noqa: PLC0415

            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415

        return postgresql.insert(table)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _failures_named(self, purpose: str) -> Iterator[None]:
        try:
            yield
        except (IntegrityError, DataError):
            # No user's input gets here unchecked: this is a mistake in the code, and wants its traceback.
            raise
        except DBAPIError as error:
            said = without_secrets(" ".join(str(error.orig).split()), self.url)
            raise OperationError(f"{self.name}: cannot {purpose}: {said}; {self._remedy(said)}") from None
        except PoolTimeoutError:
            raise OperationError(
                f"{self.name}: cannot {purpose}: all connections are in use; is the database answering?"
            ) from None

    def _remedy(self, said: str) -> str:
        lowered = said.lower()
        return next((remedy for words, remedy in REMEDIES if words in lowered), self._default_remedy())

    def _default_remedy(self) -> str:
        if self.is_sqlite:
            return "check that the file is a database of Wattloop in an existing, writable folder"
        return "check that the server runs, can be reached and lets this user in"


# Words in a driver's message, and what would mend it; the first that occurs is taken.
REMEDIES = (
    ("disk is full", "free space on its disk; what was recorded before is kept"),
    ("no space left", "free space on the server's disk; what was recorded before is kept"),
    ("disk i/o error", "check the disk's health, its free space and the limit on file sizes (ulimit -f)"),
    ("database is locked", "another process holds it; end that process, or wait for it"),
    ("lock timeout", "another process holds it; end that process, or wait for it"),
    ("readonly database", "make the file and its folder writable for this user"),
    ("not a database", "name another file: this one is not SQLite's"),
    ("malformed", "the file is damaged: put back a copy, or name a new file (the cluster's objects rebuild learning)"),
    ("unable to open", "name a file in an existing, writable folder"),
    ("authentication failed", "check the user and the password in the URL"),
    ("no password supplied", "give the password in the URL or in a password file (~/.pgpass)"),
    ("does not exist", "create it first (createdb), or name another one in the URL"),
    ("permission denied", "grant this user the right to create and change tables in this database"),
    ("read-only transaction", "name the primary server: this one is a standby, or is set to read only"),
)


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": LOCK_WAIT_SECONDS})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Python's module would otherwise begin transactions by itself, late and never for reads or for CREATE TABLE.
    connection.isolation_level = None
    for pragma in ("foreign_keys = ON", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    statement = connection.get_execution_options().get(BEGIN, "BEGIN")
    if statement == BEGIN_WRITING:
        _begin_writing_sqlite(connection)
    elif statement:
        connection.exec_driver_sql(statement)


def _begin_writing_sqlite(connection: Connection) -> None:
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    _set_busy_timeout(connection, min(LOCK_SAFE_POINT_SECONDS, LOCK_WAIT_SECONDS))
    try:
        while True:
            try:
                connection.exec_driver_sql(BEGIN_WRITING)
            except OperationalError as error:
                if "locked" not in str(error.orig) or time.monotonic() >= deadline:
                    raise
                interruption.raise_if_requested()
            else:
                return
    finally:
        _set_busy_timeout(connection, LOCK_WAIT_SECONDS)


def _set_busy_timeout(connection: Connection, seconds: float) -> None:
    connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


def _postgresql_engine(url: URL) -> Engine:
    return create_engine(
        url,
        # A server that was restarted is noticed before a transaction starts on a dead connection.
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": CONNECT_WAIT_SECONDS,
            "application_name": "wattloop",
            # One that vanished without a word, such as its node, is noticed within a transaction too; the kernel's own
            # patience is a quarter of an hour for what was sent, and two hours for an answer.
            "keepalives_idle": LOCK_WAIT_SECONDS,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": LOCK_WAIT_SECONDS * 1000,
        },
    )
