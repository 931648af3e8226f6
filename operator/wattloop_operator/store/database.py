"""An open database: its transactions, and errors that say what to do."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from sqlalchemy import URL, Column, Connection, Engine, Table, create_engine, event, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, MultipleResultsFound, NoResultFound, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from wattloop import interruption
from wattloop.errors import InputError, OperationError
from wattloop.printable import short_repr
from wattloop_operator.store.address import display_name, without_secrets

# Maximum wait for another writer's lock, far longer than any transaction of Wattloop takes.
LOCK_WAIT_SECONDS = 30
CONNECT_WAIT_SECONDS = 10
# A wait for SQLite's lock is divided into waits of this length, with a safe point for interruption
# after each.
LOCK_SAFE_POINT_SECONDS = 0.2
# Execution option: the statement that begins a transaction on SQLite.
BEGIN = "wattloop_begin"
BEGIN_WRITING = "BEGIN IMMEDIATE"
# Processor time of a transaction that reads from SQLite, far more than a database of millions of rows takes. Asked for
# after so many steps of SQLite's machine, which take 5 ms.
READ_SECONDS = 60
STEPS_BETWEEN_LOOKS = 100_000
# The largest row that Wattloop writes is a pipeline's profile (48 MiB), the largest that a command shows a decision.
MAX_VALUE_BYTES = 64 * 1024 * 1024
MAX_SHOWN_VALUE_BYTES = 16 * 1024 * 1024
# Of a damaged file any number of rows may be unreadable.
MAX_UNREADABLE_ROWS = 100

Value = TypeVar("Value")


class DatabaseUnavailableError(OperationError):
    """The database's server could not be reached, starts or stops: waiting may help."""


class Database:
    """An engine with transactions for reading and for writing, whose errors are `OperationError`.

    Those for which waiting may help are `DatabaseUnavailableError`. Thread-safe: each transaction has
    its own connection.

    Args:
        url: Its checked URL.
        leaves_out: Whether a row that cannot be read is left out, and named in `unreadable_rows`, instead of an error:
            for commands that only show.
    """

    def __init__(self, url: URL, *, leaves_out: bool = False) -> None:
        self.url = url
        self.name = display_name(url)
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self._leaves_out = leaves_out
        self._unreadable: dict[str, None] = {}
        self._time = _ReadingTime()
        if self.is_sqlite:
            self._engine = _sqlite_engine(url, self._time, MAX_SHOWN_VALUE_BYTES if leaves_out else MAX_VALUE_BYTES)
        else:
            self._engine = _postgresql_engine(url)

    @property
    def unreadable_rows(self) -> tuple[str, ...]:
        """What was left out so far: table and row, what was found and what was expected; the first of very many."""
        return tuple(self._unreadable)

    def values(self, table: Table, rows: Iterable[Any], make: Callable[..., Value]) -> tuple[Value, ...]:
        """The value of each row.

        Args:
            table: What the rows are of.
            rows: The rows.
            make: Makes the value of the columns of a row.

        Raises:
            InputError: A row has no value, and none is left out.
        """
        found = []
        for row in rows:
            try:
                found.append(make(*row))
            except InputError as error:
                self.leave_out(table, error)
        return tuple(found)

    def texts(self, table: Table, rows: Iterable[Any]) -> tuple[tuple[str, ...], ...]:
        """Rows of names alone, for `values`."""
        return self.values(table, rows, _texts)

    def leave_out(self, table: Table, error: InputError) -> None:
        """Leave out a row that cannot be read.

        Raises:
            InputError: None is left out.
        """
        if not self._leaves_out:
            raise error
        if len(self._unreadable) < MAX_UNREADABLE_ROWS:
            self._unreadable[f"table {table.name}: {error}"] = None

    @contextlib.contextmanager
    def reading(self, purpose: str) -> Iterator[Connection]:
        """A transaction that only reads; `purpose` completes "cannot …" in errors.

        Raises:
            OperationError: The database failed, or a SQLite file takes too long.
        """
        with self._translated_errors(purpose), self._time.bounded(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, purpose: str) -> Iterator[Connection]:
        """A transaction that writes: durable after the block, rolled back if the block raises.

        On SQLite it takes the write lock at once, so that no later statement fails because of
        another writer.

        Raises:
            OperationError: The database failed.
            wattloop.interruption.Interrupted: A signal arrived during a wait for SQLite's lock.
        """
        with (
            self._translated_errors(purpose),
            self._engine.execution_options(**{BEGIN: BEGIN_WRITING}).begin() as connection,
        ):
            yield connection

    @contextlib.contextmanager
    def without_transaction(self, purpose: str) -> Iterator[Connection]:
        """A connection to SQLite in autocommit mode, for statements outside of transactions."""
        with self._translated_errors(purpose), self._engine.execution_options(**{BEGIN: ""}).connect() as connection:
            yield connection

    def distinct(self, column: Column[str], purpose: str) -> set[str]:
        """The values of a column.

        Raises:
            OperationError: The database failed.
        """
        with self.reading(purpose) as on:
            return set(on.execute(select(column).distinct()).scalars())

    def insert(self, table: Table) -> Any:
        """An INSERT that supports ON CONFLICT, in this database's dialect."""
        # Imports only the dialect in use, which the engine has imported already.
        if self.is_sqlite:
            from sqlalchemy.dialects import sqlite  # noqa: PLC0415

            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415

        return postgresql.insert(table)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextlib.contextmanager
    def _translated_errors(self, purpose: str) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError:
            # SQLite quotes the damaged schema in an error.
            raise OperationError(f"{self.name}: cannot {purpose}: {self._remedy('malformed')}") from None
        except (NoResultFound, MultipleResultsFound):
            raise OperationError(
                f"{self.name}: cannot {purpose}: a table that has one row in every database of Wattloop has none or "
                "several; restore a copy, or name another database"
            ) from None
        except DBAPIError as error:
            if isinstance(error, IntegrityError | DataError) and not self.is_sqlite:
                # All input is checked before, so this is a defect, which needs its traceback. A file may have rules
                # and values that are not Wattloop's.
                raise
            message = without_secrets(" ".join(str(error.orig).split()), self.url)
            kind = (
                DatabaseUnavailableError if not self.is_sqlite and _is_unavailable(error, message) else OperationError
            )
            raise kind(f"{self.name}: cannot {purpose}: {message}; {self._remedy(message)}") from None
        except PoolTimeoutError:
            raise OperationError(
                f"{self.name}: cannot {purpose}: all connections are in use; check that the database responds"
            ) from None

    def _remedy(self, message: str) -> str:
        lowered = message.lower()
        default = "check that the server runs, is reachable and accepts this user"
        if self.is_sqlite:
            default = "check that the file is a Wattloop database in an existing, writable folder"
        return next((remedy for text, remedy in REMEDIES if text in lowered), default)


DAMAGED = "the file is damaged: restore a backup, or name a new file; the objects give back only a part"
# Text of a driver's message, and its remedy; the first match is used.
REMEDIES = (
    ("disk is full", "free space on its disk; existing data is kept"),
    ("no space left", "free space on the server's disk; existing data is kept"),
    ("disk i/o error", "check the disk's health, its free space and the limit on file sizes (ulimit -f)"),
    ("database is locked", "another process holds the lock; wait for that process or end it"),
    ("lock timeout", "another process holds the lock; wait for that process or end it"),
    ("readonly database", "make the file and its folder writable for this user"),
    ("not a database", "name another file: this one is not a SQLite database"),
    ("interrupted", f"its rows take more than {READ_SECONDS} s of processor time, as those of no Wattloop database do"),
    ("too big", "it has a larger value than Wattloop writes; name another file"),
    ("constraint failed", "its tables have rules that Wattloop's do not; name another file"),
    ("malformed", DAMAGED),
    ("unable to open", "name a file in an existing, writable folder"),
    ("authentication failed", "check the user and the password in the URL"),
    ("no password supplied", "give the password in the URL or in a password file (~/.pgpass)"),
    ("does not exist", "create it (createdb), or name another one in the URL"),
    ("permission denied", "grant this user the right to create and change tables in this database"),
    ("read-only transaction", "name the primary server: this one is a standby or read-only"),
    ("certificate", "check sslmode, sslrootcert, sslcert and sslkey in the URL, and the server's certificate"),
    ("does not support ssl", "set sslmode in the URL to what the server supports, or serve TLS"),
    ("invalid", "correct this part of the URL"),
)
# What no waiting changes, in messages without a code: libpq checks the URL's options as it connects.
MISCONFIGURED = ("invalid ", "certificate", "does not support SSL")
# PostgreSQL's message if it accepts no connection now. An error of the connection has no code.
NOT_NOW = ("starting up", "shutting down", "in recovery", "not yet accepting", "too many clients", "connection slots")


def _is_unavailable(error: DBAPIError, message: str) -> bool:
    code = getattr(error.orig, "sqlstate", None)
    if code is not None:
        return str(code).startswith(("08", "57P"))
    is_rejection = "FATAL" in message and not any(text in message for text in NOT_NOW)
    is_misconfigured = any(text in message for text in MISCONFIGURED)
    return isinstance(error, OperationalError) and not is_rejection and not is_misconfigured


def _texts(*found: object) -> tuple[str, ...]:
    names = tuple(each for each in found if isinstance(each, str))
    if len(names) < len(found):
        raise InputError("a row", short_repr(found), "names")
    return names


class _ReadingTime:
    """The processor time until which each thread may read; thread-safe."""

    def __init__(self) -> None:
        self._threads = threading.local()

    @contextlib.contextmanager
    def bounded(self) -> Iterator[None]:
        """Bound what SQLite does in a block, in this thread."""
        self._threads.end = time.thread_time() + READ_SECONDS
        try:
            yield
        finally:
            self._threads.end = None

    def is_over(self) -> bool:
        """Whether this thread has read for too long."""
        end: float | None = getattr(self._threads, "end", None)
        return end is not None and time.thread_time() > end


def _sqlite_engine(url: URL, reading: _ReadingTime, max_value_bytes: int) -> Engine:
    engine = create_engine(url, connect_args={"timeout": LOCK_WAIT_SECONDS})

    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        # Otherwise Python's sqlite3 begins transactions implicitly, and none for SELECT and CREATE
        # TABLE.
        connection.isolation_level = None
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max_value_bytes)
        connection.set_progress_handler(reading.is_over, STEPS_BETWEEN_LOOKS)
        # The error of a text that is not UTF-8 has the text, and is one of the whole query.
        connection.text_factory = lambda text: text.decode(errors="replace")
        for pragma in ("foreign_keys = ON", "synchronous = FULL", "trusted_schema = OFF", "cell_size_check = ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


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
        # Detects a restarted server before a transaction starts on a dead connection.
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": CONNECT_WAIT_SECONDS,
            "application_name": "wattloop",
            # Detects within a transaction that the server's machine is gone. The kernel's defaults
            # are 15 minutes for unacknowledged data and 2 hours for an idle connection.
            "keepalives_idle": LOCK_WAIT_SECONDS,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": LOCK_WAIT_SECONDS * 1000,
        },
    )
