"""The store as a whole: opened by its URL, migrated, and what it keeps by subject."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from wattloop.errors import OperationError, UsageError
from wattloop.files.reading import special_file_kind
from wattloop_operator.store.address import database_url, described
from wattloop_operator.store.database import Database
from wattloop_operator.store.late_usages import LateUsages
from wattloop_operator.store.objects import Objects
from wattloop_operator.store.observations import Observations
from wattloop_operator.store.pod_energies import PodEnergies
from wattloop_operator.store.profiles import Profiles
from wattloop_operator.store.schema import migrate


class Store:
    """An open store. Its methods may be called from several threads; every write is durable when it returns.

    Attributes:
        name: The database's URL without its password, for messages.
        observations: What every attempt cost.
        late_usages: What attempts used, where agents told of it after the outcome.
        profiles: What each power limit cost.
        pod_energies: What pods used, in the agents' word.
        objects: The local mode's objects.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.name = database.name
        self.observations = Observations(database)
        self.late_usages = LateUsages(database)
        self.profiles = Profiles(database)
        self.pod_energies = PodEnergies(database)
        self.objects = Objects(database)

    def close(self) -> None:
        """Close its connections; nothing may be asked of it any more."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(url: str | Path, *, create: bool = True) -> Store:
    """Open a database and bring it to this version's schema.

    Args:
        url: ``sqlite:///PATH``, ``postgresql://USER:PASSWORD@HOST/DATABASE``, or the `Path` of a SQLite file.
        create: Whether a missing file or an empty database is to be filled; False refuses it, for commands that only
            read.

    Raises:
        UsageError: The URL is none, or not of a database that Wattloop uses.
        OperationError: The database cannot be reached, read or written, is another program's, or a newer Wattloop's.
    """
    address = database_url(url)
    if address.drivername.startswith("sqlite") and (kind := special_file_kind(str(address.database))):
        raise UsageError(f"{described(address)}: found {kind}, expected a SQLite file")
    database = Database(address)
    if database.is_sqlite and not create and not Path(str(address.database)).exists():
        raise OperationError(f"{database.name}: there is no such file; name a database that Wattloop has run with")
    try:
        migrate(database, create=create)
    except BaseException:
        database.close()
        raise
    return Store(database)
