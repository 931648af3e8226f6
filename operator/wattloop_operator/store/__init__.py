"""The SQL memory: every observation and power profile, what pods used, and the local mode's objects.

Callers use `open_store` and what the returned `Store` offers; they never see SQL.
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
from wattloop_operator.store.objects import ConflictError, ObjectExistsError, ObjectMissingError, StoredObject
from wattloop_operator.store.observations import JobObservations
from wattloop_operator.store.store import Store, open_store

__all__ = [
    "RESULTS",
    "ConflictError",
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
