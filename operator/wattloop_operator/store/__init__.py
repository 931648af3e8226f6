"""The SQL store: observations, power profiles, energy of pods, objects of the local mode.

`open_store` opens a database; the methods of the returned `Store` hide its SQL.
"""

from wattloop_operator.domain.records import (
    RESULTS,
    LateUsage,
    ObservationRecord,
    PodEnergy,
    PowerMeasurement,
    PowerProfileRecord,
    ProfileKey,
)
from wattloop_operator.store.database import DatabaseUnavailableError
from wattloop_operator.store.objects import ConflictError, ObjectExistsError, ObjectMissingError, StoredObject
from wattloop_operator.store.observation_store import JobObservations
from wattloop_operator.store.store import Store, open_store

__all__ = [
    "RESULTS",
    "ConflictError",
    "DatabaseUnavailableError",
    "JobObservations",
    "LateUsage",
    "ObjectExistsError",
    "ObjectMissingError",
    "ObservationRecord",
    "PodEnergy",
    "PowerMeasurement",
    "PowerProfileRecord",
    "ProfileKey",
    "Store",
    "StoredObject",
    "open_store",
]
