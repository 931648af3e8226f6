"""A real PostgreSQL server for as long as a test run or a benchmark: a folder of its own, a Unix socket, no port."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

PASSWORD = "a-secret-that-no-message-shows"


class PostgreSqlMissingError(Exception):
    """PostgreSQL is not installed here; the text says what would install it."""


@dataclass(frozen=True)
class PostgreSqlServer:
    """A running server, whose one user is ``wattloop``."""

    folder: Path

    def url(self, database: str, user: str = "wattloop", password: str = PASSWORD) -> str:
        """The URL of one of its databases."""
        return f"postgresql://{user}:{password}@/{database}?host={self.folder}"

    def new_database(self, settings: str = "") -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {name} {settings}")
        return self.url(name)

    @contextlib.contextmanager
    def database_on(self, disk: Path) -> Iterator[str]:
        """The URL of a new, empty database that is kept in this folder, and gone from it when the block ends."""
        os.chown(disk, (self.folder / "data").stat().st_uid, -1)
        space = f"space_{uuid.uuid4().hex}"
        self._execute(f"CREATE TABLESPACE {space} LOCATION '{disk}'")
        url = self.new_database(f"TABLESPACE {space}")
        yield url
        self._execute(f"DROP DATABASE {conninfo_to_dict(url)['dbname']} WITH (FORCE)")
        self._execute(f"DROP TABLESPACE {space}")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


@dataclass(frozen=True)
class PostgreSqlPrograms:
    """The two programs of PostgreSQL that make and serve databases."""

    initdb: str
    postgres: str


def postgresql_programs() -> PostgreSqlPrograms:
    """Find them where Debian puts them, or on PATH.

    Raises:
        PostgreSqlMissingError: They are not there.
    """
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        raise PostgreSqlMissingError("PostgreSQL is not installed (as root on Debian, `make postgres` installs it)")
    return PostgreSqlPrograms(initdb, postgres)


def _program(name: str) -> str | None:
    # Debian keeps the programs of each version in a folder of its own, off the path.
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    return str(installed[-1]) if installed else shutil.which(name)


@contextlib.contextmanager
def running_postgresql(programs: PostgreSqlPrograms, *, durable: bool = False) -> Iterator[PostgreSqlServer]:
    """A server that has ended, with all of its processes and files, when the block ends.

    Args:
        programs: What to start.
        durable: Whether a commit waits for the disk, as in earnest; tests lose no power.
    """
    with postgresql_folder(programs) as folder, serving_postgresql(programs, folder, durable=durable) as server:
        yield server


@contextlib.contextmanager
def postgresql_folder(programs: PostgreSqlPrograms) -> Iterator[Path]:
    """A folder that servers can be started on, one after another; gone when the block ends."""
    # A socket's path is short, and the server's user must reach it: not below pytest's folder.
    with tempfile.TemporaryDirectory(prefix="wattloop-postgresql-") as name:
        _make_cluster(programs.initdb, _unprivileged_user(), Path(name))
        yield Path(name)


@contextlib.contextmanager
def serving_postgresql(
    programs: PostgreSqlPrograms, folder: Path, *, durable: bool = False
) -> Iterator[PostgreSqlServer]:
    """A server on a folder for as long as the block; all of its processes have ended then."""
    # A time zone other than ours, so that a time kept without its zone would come back wrong.
    settings = [f"unix_socket_directories={folder}", "listen_addresses=", "timezone=Asia/Tokyo"]
    settings += [f"fsync={'on' if durable else 'off'}"]
    words = [programs.postgres, "-D", str(folder / "data"), *(word for each in settings for word in ("-c", each))]
    with _started(_unprivileged_user(), folder, *words) as server:
        log: list[str] = []
        ready = threading.Event()
        reader = threading.Thread(target=_read_log, args=(server, log, ready))
        reader.start()
        try:
            assert ready.wait(timeout=60), "".join(log)
            assert server.poll() is None, "".join(log)
            yield PostgreSqlServer(folder)
        finally:
            # Fast shutdown: it ends its connections and all of its processes.
            server.send_signal(signal.SIGINT)
            server.wait()
            reader.join()


def _unprivileged_user() -> str | None:
    """Another user where we are root: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"


def _started(user: str | None, folder: Path, *words: str) -> subprocess.Popen[str]:
    # The kernel stops the server when this process is killed before it can.
    setpriv = shutil.which("setpriv")
    return subprocess.Popen(
        [*([setpriv, "--pdeathsig", "INT"] if setpriv else []), *words],
        cwd=folder,
        user=user,
        extra_groups=[] if user else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Ctrl-C is for us, who then stop the server.
        start_new_session=True,
    )


def _make_cluster(initdb: str, user: str | None, folder: Path) -> None:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if user is not None:
        for path in (folder, secret):
            shutil.chown(path, user)
    words = [initdb, "--pgdata", str(folder / "data"), "--username", "wattloop", "--pwfile", str(secret)]
    words += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
    with _started(user, folder, *words) as making:
        output, _ = making.communicate()
    assert making.returncode == 0, output


def _read_log(server: subprocess.Popen[str], log: list[str], ready: threading.Event) -> None:
    assert server.stdout is not None
    for line in server.stdout:
        log.append(line)
        if "ready to accept connections" in line:
            ready.set()
    ready.set()
