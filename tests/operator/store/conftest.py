"""The two databases that every test of the store meets: a SQLite file and a real PostgreSQL server."""

from __future__ import annotations

import dataclasses
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from wattloop_operator.store import ObservationRecord, Store, open_store

PASSWORD = "a-secret-that-no-message-shows"


@dataclasses.dataclass(frozen=True)
class PostgreSqlServer:
    """A server on a Unix socket in a folder of its own."""

    folder: Path

    def url(self, database: str, user: str = "wattloop", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)


def _program(name: str) -> str | None:
    # Debian keeps the programs of each version in a folder of its own, off the path.
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    return str(installed[-1]) if installed else shutil.which(name)


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"


def _start(user: str | None, folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        cwd=folder,
        user=user,
        extra_groups=[] if user else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _make_cluster(initdb: str, user: str | None, folder: Path) -> None:
    secret = folder / "password"
    secret.write_text(PASSWORD)
    if user is not None:
        for path in (folder, secret):
            shutil.chown(path, user)
    words = [initdb, "--pgdata", str(folder / "data"), "--username", "wattloop", "--pwfile", str(secret)]
    words += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
    with _start(user, folder, *words) as making:
        output, _ = making.communicate()
    assert making.returncode == 0, output


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSqlServer]:
    """A real server, started once for each test process and stopped at its end."""
    initdb, postgres = _program("initdb"), _program("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed, so nothing was tested on it; as root, `make postgres` installs it")
    user = _unprivileged_user()
    # Not below pytest's folder: a socket's path is short, and the server's user must reach it.
    with tempfile.TemporaryDirectory(prefix="wattloop-postgresql-") as name:
        folder = Path(name)
        _make_cluster(initdb, user, folder)
        # A time zone other than ours, so that a time kept without its zone would come back wrong.
        settings = [f"unix_socket_directories={folder}", "listen_addresses=", "fsync=off", "timezone=Asia/Tokyo"]
        words = [postgres, "-D", str(folder / "data"), *(word for each in settings for word in ("-c", each))]
        with _start(user, folder, *words) as server:
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


def _read_log(server: subprocess.Popen[str], log: list[str], ready: threading.Event) -> None:
    assert server.stdout is not None
    for line in server.stdout:
        log.append(line)
        if "ready to accept connections" in line:
            ready.set()
    ready.set()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'wattloop.db'}"
    server: PostgreSqlServer = request.getfixturevalue("postgresql_server")
    return server.new_database()


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with open_store(database_url) as opened:
        yield opened


@pytest.fixture
def observation() -> Callable[..., ObservationRecord]:
    """Makes a record: sound by itself, with what the test wants different."""

    def make(**changes: object) -> ObservationRecord:
        return dataclasses.replace(_RECORD, **changes)  # type: ignore[arg-type]

    return make


_RECORD = ObservationRecord(
    job_uid="0c3b2d9e",
    namespace="team",
    job_name="digits",
    recurrence=0,
    attempt=0,
    recurrence_name="digits-0",
    batch_size=32,
    power_limit_watts=250.0,
    result="Reached",
    epochs=3.5,
    metric=0.97,
    energy_joules=12_345.678,
    time_seconds=61.5,
    max_power_watts=300.0,
    gpu_model="NVIDIA A40",
    gpu_count=1,
    epoch_energy_joules=3527.3,
    epoch_time_seconds=17.6,
    attribution="Exclusive",
    decision_kind="trial",
    reason="every batch size is tried once",
    scheduled_at=datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    finished_at=datetime(2026, 3, 29, 1, 31, 1, 500_123, tzinfo=UTC),
)
