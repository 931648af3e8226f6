"""Records of runs whose curves all have the same shape, stretched over their epochs to the target."""

from dataclasses import replace

from support.databases.sample_record import RECORD
from wattloop_operator.domain.records import ObservationRecord
from wattloop_planner.metric_curve import MetricCurve

TARGET = {"metric": "accuracy", "threshold": "0.9"}
# Batch size and epochs to the target. Batch size 128 was never tried.
RUNS = ((64, 20), (32, 20), (64, 21), (32, 19))
CANDIDATES = (32, 64, 128)
EPOCH_JOULES = 2000.0
EPOCH_SECONDS = 10.0
MAX_POWER_WATTS = 300.0
GPU_PRODUCT = "Simulated GPU"


def metric_after(epoch: int, epochs_to_target: int) -> float:
    """The metric of a run that reaches the target of 0.9 after these epochs."""
    return round(0.9 * (epoch / epochs_to_target) ** 0.5, 6)


def curved_records(job_uid: str, namespace: str, job_name: str) -> tuple[ObservationRecord, ...]:
    """The records of runs that give curves enough weight to end a trial."""
    return tuple(
        replace(
            RECORD,
            job_uid=job_uid,
            namespace=namespace,
            job_name=job_name,
            recurrence=index,
            recurrence_name=f"{job_name}-{index}",
            batch_size=batch_size,
            epochs=float(epochs),
            metric=0.9,
            target_threshold=0.9,
            energy_joules=EPOCH_JOULES * epochs,
            time_seconds=EPOCH_SECONDS * epochs,
            max_power_watts=MAX_POWER_WATTS,
            gpu_product=GPU_PRODUCT,
            epoch_energy_joules=EPOCH_JOULES,
            epoch_time_seconds=EPOCH_SECONDS,
            curve=MetricCurve(
                tuple(float(epoch) for epoch in range(1, epochs + 1)),
                tuple(metric_after(epoch, epochs) for epoch in range(1, epochs + 1)),
            ),
        )
        for index, (batch_size, epochs) in enumerate(RUNS)
    )
