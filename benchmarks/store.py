"""Observations per second that the store records durably, on both databases, and inserts of the bare driver.

``python benchmarks/store.py`` prints the table. The benchmark starts PostgreSQL on this machine, with durable commits,
over a Unix socket; if it is not installed, it measures only SQLite. The bare driver writes the same rows in the same
run: one transaction per row, with the same durability, without checks and SQLAlchemy. The ratio is the cost of the
store's own work.
"""

from __future__ import annotations

import argparse
import dataclasses
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import psycopg

from wattloop_operator.store import ObservationRecord, open_store
from wattloop_operator.store.tables import OBSERVATIONS

# The PostgreSQL server and the sample record of the tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.databases.postgresql_server import PostgreSqlMissingError, postgresql_programs, running_postgresql
from support.databases.sample_record import RECORD

COLUMNS = [column.name for column in OBSERVATIONS.columns]
THREADS = 4
BARE = "bare driver, new"
READ = "store, read back"


def record(job_uid: str, recurrence: int) -> ObservationRecord:
    """The recurrence-th observation of a job."""
    return dataclasses.replace(RECORD, job_uid=job_uid, recurrence=recurrence, recurrence_name=f"digits-{recurrence}")


def per_second(count: int, work: Callable[[], None]) -> float:
    """Rate of a call that does this number of operations."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def bare_sqlite(count: int, path: Path) -> float:
    """The driver alone, on a table of the same columns."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"CREATE TABLE bare ({', '.join(COLUMNS)}, PRIMARY KEY (job_uid, recurrence, attempt))")
    insert = f"INSERT INTO bare ({', '.join(COLUMNS)}) VALUES ({', '.join(f':{name}' for name in COLUMNS)})"
    rows = [
        {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
        for row in (dataclasses.asdict(record("bare", index)) for index in range(count))
    ]

    def work() -> None:
        for row in rows:
            connection.execute(insert, row)

    try:
        return per_second(count, work)
    finally:
        connection.close()


def bare_postgresql(count: int, url: str) -> float:
    """The driver alone, on a table of the same columns and types."""
    insert = f"INSERT INTO bare ({', '.join(COLUMNS)}) VALUES ({', '.join(f'%({name})s' for name in COLUMNS)})"
    rows = [dataclasses.asdict(record("bare", index)) for index in range(count)]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE bare (LIKE observations INCLUDING ALL)")
        try:
            return per_second(count, lambda: [connection.execute(insert.encode(), row) for row in rows] and None)
        finally:
            connection.execute("DROP TABLE bare")


def measured(url: str | Path, count: int) -> dict[str, float]:
    """Rates of the store: new rows from one thread, repeated rows, new rows from several threads, and reading."""
    with open_store(url) as store:

        def write(job_uid: str) -> None:
            for index in range(count):
                store.observations.record(record(job_uid, index))

        def write_from_threads() -> None:
            with ThreadPoolExecutor(THREADS) as threads:
                records = [record("threads", index) for index in range(count)]
                list(threads.map(store.observations.record, records))

        write("warm")
        return {
            "store, new": per_second(count, lambda: write("one")),
            "store, repeated": per_second(count, lambda: write("one")),
            f"store, new from {THREADS} threads": per_second(count, write_from_threads),
            READ: per_second(count, lambda: store.observations.of_job("one") and None),
        }


def table(rates: dict[str, dict[str, float]]) -> str:
    """The rates as a Markdown table, relative to the bare driver on the same database in this run."""
    lines = ["| database | work | observations per second | relative to the bare driver |", "|---|---|---:|---:|"]
    for database, of_work in rates.items():
        for work, rate in of_work.items():
            ratio = "" if work == READ else f"{rate / of_work[BARE]:.2f}"
            lines.append(f"| {database} | {work} | {rate:,.0f} | {ratio} |")
    return "\n".join(lines)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observations", type=int, default=1000, metavar="N", help="observations (default: 1000)")
    parser.add_argument("--folder", type=Path, help="folder of the SQLite file (default: the temporary folder)")
    arguments = parser.parse_args()
    count: int = arguments.observations
    rates: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        store = measured(Path(folder) / "wattloop.db", count)
        rates["SQLite"] = {BARE: bare_sqlite(count, Path(folder) / "bare.db"), **store}
    try:
        with running_postgresql(postgresql_programs(), durable=True) as server:
            url = server.new_database()
            store = measured(url, count)
            rates["PostgreSQL"] = {BARE: bare_postgresql(count, url), **store}
    except PostgreSqlMissingError as error:
        sys.stderr.write(f"{error}; measured on SQLite only\n")
    sys.stdout.write(table(rates) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
