"""A valid energy of a pod, which tests change with `dataclasses.replace`."""

from datetime import UTC, datetime

from wattloop_operator.store import PodEnergy

REPORTED_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
POD_ENERGY = PodEnergy(
    job_uid="job",
    recurrence=0,
    attempt=0,
    node="node-1",
    ledger="ledger",
    pod_uid="pod-1",
    pod="digits-0",
    container="train",
    gpu_uuid="GPU-0",
    gpu_product="NVIDIA H200",
    shared=False,
    energy_millijoules=1000,
    uncertainty_millijoules=10,
    start_time_seconds=5.0,
    time_seconds=6.0,
    ended=False,
    reported_at=REPORTED_AT,
)
