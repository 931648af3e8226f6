"""A valid observation, which tests and benchmarks change with `dataclasses.replace`."""

from datetime import UTC, datetime

from wattloop_operator.store import ObservationRecord
from wattloop_planner.metric_curve import MetricCurve

RECORD = ObservationRecord(
    job_uid="0c3b2d9e",
    namespace="team",
    job_name="digits",
    recurrence=0,
    attempt=0,
    recurrence_name="digits-0",
    batch_size=32,
    power_limit_watts=300.0,
    result="Reached",
    epochs=10.0,
    metric=0.97,
    energy_joules=2000.0,
    time_seconds=10.0,
    max_power_watts=300.0,
    gpu_product="NVIDIA A40",
    gpu_count=1,
    epoch_energy_joules=200.0,
    epoch_time_seconds=1.0,
    attribution="Exclusive",
    decision_kind="Trial",
    reason="every batch size is tried, once",
    scheduled_at=datetime(2026, 3, 1, tzinfo=UTC),
    finished_at=datetime(2026, 3, 1, 0, 1, 1, 500_123, tzinfo=UTC),
    template_digest="0123456789abcdef",
    target_metric="accuracy",
    target_direction="Maximize",
    target_threshold=0.95,
    target_evaluations=1,
    image_digest="sha256:" + "0123456789abcdef" * 4,
    curve=MetricCurve((1.0, 9.5, 10.0), (0.5, 0.9, 0.97)),
)
