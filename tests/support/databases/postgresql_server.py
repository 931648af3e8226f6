"""A real PostgreSQL server for tests and benchmarks, in its own folder and on a Unix socket."""

import contextlib
import os
import pwd
import select
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
    """PostgreSQL is not installed; the text says how to install it."""


@dataclass(frozen=True)
class PostgreSqlServer:
    """A running server with the user ``wattloop``."""

    folder: Path
    process_id: int = 0

    def kill(self) -> None:
        """Kill all of its processes, as the kernel does without memory; nothing is shut down, and none is left."""
        # Each connection has a process in a session of its own, which would commit once more. They are
        # found through their parent, which therefore stops first, and ends last.
        os.kill(self.process_id, signal.SIGSTOP)
        children = Path(f"/proc/{self.process_id}/task/{self.process_id}/children").read_text().split()
        handles = [os.pidfd_open(int(child)) for child in children]
        for handle in handles:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        for handle in handles:
            select.select([handle], [], [])
            os.close(handle)
        os.kill(self.process_id, signal.SIGKILL)

    def url(self, database: str, user: str = "wattloop", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@/{database}?host={self.folder}"

    def new_database(self, settings: str = "") -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {name} {settings}")
        return self.url(name)

    @contextlib.contextmanager
    def database_on(self, disk: Path) -> Iterator[str]:
        """The URL of a new, empty database in this folder, which is deleted after the block."""
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
    """The programs that create and serve databases."""

    initdb: str
    postgres: str


def postgresql_programs() -> PostgreSqlPrograms:
    """Find the programs in Debian's folders, or on PATH."""
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        raise PostgreSqlMissingError("PostgreSQL is not installed (as root on Debian, `make postgres` installs it)")
    return PostgreSqlPrograms(initdb, postgres)


def _program(name: str) -> str | None:
    # Debian installs the programs of each version in a folder that is not on PATH.
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    return str(installed[-1]) if installed else shutil.which(name)


@contextlib.contextmanager
def running_postgresql(programs: PostgreSqlPrograms, *, durable: bool = False) -> Iterator[PostgreSqlServer]:
    """Run a server during the block; its processes and files are gone afterwards.

    Args:
        durable: Whether a commit waits for the disk, which tests do not need.
    """
    with postgresql_folder(programs) as folder, serving_postgresql(programs, folder, durable=durable) as server:
        yield server


@contextlib.contextmanager
def postgresql_folder(programs: PostgreSqlPrograms) -> Iterator[Path]:
    """A data folder for successive servers, which is deleted after the block."""
    # The path of a socket must be short, and accessible for the server's user.
    with tempfile.TemporaryDirectory(prefix="wattloop-postgresql-") as name:
        _make_cluster(programs.initdb, _unprivileged_user(), Path(name))
        yield Path(name)


@contextlib.contextmanager
def serving_postgresql(
    programs: PostgreSqlPrograms, folder: Path, *, durable: bool = False
) -> Iterator[PostgreSqlServer]:
    """Run a server on a data folder during the block; all of its processes end afterwards."""
    # Another time zone, which reveals times that are stored without their zone.
    settings = [f"unix_socket_directories={folder}", "listen_addresses=", "timezone=Asia/Tokyo"]
    settings += [f"fsync={'on' if durable else 'off'}"]
    arguments = [
        programs.postgres,
        "-D",
        str(folder / "data"),
        *(argument for each in settings for argument in ("-c", each)),
    ]
    with _started(_unprivileged_user(), folder, *arguments) as server:
        log: list[str] = []
        ready = threading.Event()
        reader = threading.Thread(target=_read_log, args=(server, log, ready))
        reader.start()
        try:
            assert ready.wait(timeout=60), "".join(log)
            assert server.poll() is None, "".join(log)
            yield PostgreSqlServer(folder, server.pid)
        finally:
            # Fast shutdown, which ends all connections and processes.
            server.send_signal(signal.SIGINT)
            server.wait()
            reader.join()


def _unprivileged_user() -> str | None:
    """An unprivileged user if this one is root, since PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"


def _started(user: str | None, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    # The kernel stops the server if this process is killed.
    setpriv = shutil.which("setpriv")
    return subprocess.Popen(
        [*([setpriv, "--pdeathsig", "INT"] if setpriv else []), *arguments],
        cwd=folder,
        user=user,
        extra_groups=[] if user else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Ctrl-C goes to this process, which then stops the server.
        start_new_session=True,
    )


def _make_cluster(initdb: str, user: str | None, folder: Path) -> None:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if user is not None:
        for path in (folder, secret):
            shutil.chown(path, user)
    arguments = [initdb, "--pgdata", str(folder / "data"), "--username", "wattloop", "--pwfile", str(secret)]
    arguments += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
    with _started(user, folder, *arguments) as making:
        output, _ = making.communicate()
    assert making.returncode == 0, output


def _read_log(server: subprocess.Popen[str], log: list[str], ready: threading.Event) -> None:
    for line in server.stdout:
        log.append(line)
        if "ready to accept connections" in line:
            ready.set()
    ready.set()
