"""The SQL store: observations, power profiles, energy of pods, objects of the local mode.

`open_store` opens a database; the methods of the returned `Store` hide its SQL.
"""

from wattloop_operator.domain.records import (
    RESULTS,
    LateUsage,
    ObservationRecord,
    PodEnergy,
    PowerMeasurement,
    PowerProfileKey,
    PowerProfileRecord,
)
from wattloop_operator.store.database import DatabaseUnavailableError
from wattloop_operator.store.objects import ObjectConflictError, ObjectExistsError, ObjectMissingError, StoredObject
from wattloop_operator.store.observation_store import AttemptUsage, JobObservations
from wattloop_operator.store.store import Store, open_store

__all__ = [
    "RESULTS",
    "AttemptUsage",
    "DatabaseUnavailableError",
    "JobObservations",
    "LateUsage",
    "ObjectConflictError",
    "ObjectExistsError",
    "ObjectMissingError",
    "ObservationRecord",
    "PodEnergy",
    "PowerMeasurement",
    "PowerProfileKey",
    "PowerProfileRecord",
    "Store",
    "StoredObject",
    "open_store",
]
