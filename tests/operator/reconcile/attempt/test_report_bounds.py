"""Bounds on the size of an attempt's status, whatever its training reports."""

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from support.backends.model_backend import job
from wattloop.wire import training_messages
from wattloop.wire.training_messages import GpuEnergy, LimitMeasurement, Report
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.report_effect import MAX_GPUS_OF_ATTEMPT, MAX_GPUS_PER_DEVICE, progress_after
from wattloop_operator.reconcile.energy.recent_power import with_recent_power
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.stored_progress import MAX_PROGRESS_BYTES
from wattloop_operator.store.attempt_progress import text_of

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DECISION = decide(Snapshot(job()), Attempt(0, 0, "slot", NOW))
# The longest representation of each kind of number.
LONG_TIME = 1e10 - 0.01
EARLIER = LONG_TIME - 1.55
LARGEST = Report(
    process="~" * training_messages.MAX_PROCESS_CHARACTERS,
    sequence=2**63 - 1,
    epoch=training_messages.MAX_NUMBER / 3,
    metric=-training_messages.MAX_NUMBER / 3,
    evaluations=2**63 - 1,
    gpu_product="~" * training_messages.MAX_PRODUCT_CHARACTERS,
    max_power_limit_watts=training_messages.MAX_POWER_WATTS,
    power_limit_watts=training_messages.MAX_LIMIT_WATTS,
    power_limit_refusal="~" * training_messages.MAX_REFUSAL_CHARACTERS,
    profile=tuple(LimitMeasurement(9000.0 + watts, 1e14 / 3, 1e10 / 3, 1e-6 / 3 + 1e-6) for watts in range(64)),
)


def hostile_reports(count: int) -> list[Report]:
    """Reports with 64 new GPUs and a new evaluation each, with the longest uuids and numbers."""
    uuids = (f"MIG-GPU-{number:036x}/127/127" for number in itertools.count())
    energy = training_messages.MAX_ENERGY_MILLIJOULES
    return [
        replace(
            LARGEST,
            sequence=LARGEST.sequence - count + report,
            epoch=LARGEST.epoch + 1e3 * report,
            evaluations=LARGEST.evaluations - count + report,
            gpus=tuple(GpuEnergy(next(uuids), energy // 2, energy, EARLIER, LONG_TIME) for _ in range(64)),
        )
        for report in range(count)
    ]


def after(recurrence: TrainingAttempt, reports: list[Report]) -> TrainingAttempt:
    for report in reports:
        received = Report.from_json(report.to_json())
        progress = progress_after(recurrence, received)
        progress = with_recent_power(recurrence.progress, progress, received.gpus, NOW)
        recurrence = recurrence.model_copy(update={"progress": progress})
    return recurrence


def started_with(devices: int) -> TrainingAttempt:
    return DECISION.model_copy(update={"status": DECISION.status.model_copy(update={"devices": devices})})


def gpus_of(recurrence: TrainingAttempt) -> list[str]:
    return [gpu.uuid for gpu in recurrence.progress.gpus]


@pytest.mark.parametrize("devices", [1, 8, 64])
def test_the_number_of_gpus_is_bounded_by_what_the_template_requests(devices: int) -> None:
    assert len(gpus_of(after(started_with(devices), hostile_reports(20)))) == MAX_GPUS_PER_DEVICE * devices


@pytest.mark.parametrize("devices", [0, 1000])
def test_the_number_of_gpus_is_bounded_if_the_template_requests_none_or_many(devices: int) -> None:
    assert len(gpus_of(after(started_with(devices), hostile_reports(20)))) == MAX_GPUS_OF_ATTEMPT


def test_gpus_beyond_the_bound_do_not_replace_those_reported_first() -> None:
    own = replace(LARGEST, sequence=1, gpus=(GpuEnergy("GPU-f", 0, 1000, 1.0, 2.0),))
    later = replace(own, sequence=2**63 - 1, gpus=(GpuEnergy("GPU-f", 0, 5000, 1.0, 6.0),))
    recurrence = after(started_with(1), [own, *hostile_reports(5), later])
    assert "GPU-f" in gpus_of(recurrence)
    assert {gpu.uuid: gpu.energy_millijoules for gpu in recurrence.progress.gpus}["GPU-f"] == 5000


def test_the_largest_progress_is_stored() -> None:
    progress = after(started_with(0), hostile_reports(MAX_CURVE_POINTS + 1)).progress
    wire = progress.to_wire()
    assert len(wire["gpus"]) == MAX_GPUS_OF_ATTEMPT
    assert all("recent" in gpu for gpu in wire["gpus"])
    assert len(wire["curve"]) == MAX_CURVE_POINTS
    assert len(json.dumps(wire["curve"])) < 4096
    assert len(text_of(progress)) <= MAX_PROGRESS_BYTES
