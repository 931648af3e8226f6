"""Which power profile chooses a limit after the image changed, and how often limits are measured again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import backend_with
from support.databases.sample_record import RECORD
from support.test_sets.parameters import exhaustive_after
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.domain.records import ObservationRecord, PowerMeasurement, PowerProfileKey, PowerProfileRecord
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile, must_be_measured_again

EPOCH_JOULES, EPOCH_SECONDS = 200.0, 1.0
SIZE, GPU = RECORD.batch_size, RECORD.gpu_product


def digest(number: int) -> str:
    return f"sha256:{number:064x}"


@dataclass
class Nights:
    """A job that runs once a night with one batch size, and holds 300 W once its limits are measured."""

    records: list[ObservationRecord] = field(default_factory=list)
    profiles: dict[PowerProfileKey, PowerProfileRecord] = field(default_factory=dict)
    measured: list[int] = field(default_factory=list)
    used: list[str | None] = field(default_factory=list)

    def run(self, image: str | None, factor: float = 1.0, **changes: Any) -> None:
        """One night with this image, whose epochs cost this factor more than usual."""
        profiles = list(self.profiles.values())
        profile = applicable_profile(self.records, profiles, SIZE)
        measures = profile is None or must_be_measured_again(self.records, profiles, profile)
        self.used.append(None if profile is None or measures else profile.key.image_digest)
        if measures:
            self.measured.append(len(self.records))
            key = PowerProfileKey(RECORD.job_uid, SIZE, changes.get("gpu_product", GPU), 1, image or "")
            self.profiles.setdefault(key, PowerProfileRecord(key, tuple(measurements(factor))))
        energy = EPOCH_JOULES * factor
        record = replace(
            RECORD,
            recurrence=len(self.records),
            image_digest=image,
            epoch_energy_joules=energy,
            epoch_time_seconds=EPOCH_SECONDS,
        )
        self.records.append(replace(record, **changes))

    def run_all(self, nights: Iterable[tuple[str | None, float]]) -> Nights:
        for image, factor in nights:
            self.run(image, factor)
        return self


def measurements(factor: float) -> Sequence[PowerMeasurement]:
    # A tenth of an epoch at each limit.
    return [PowerMeasurement(watts, EPOCH_JOULES * factor / 10, EPOCH_SECONDS / 10, 0.1) for watts in (200.0, 300.0)]


A, B, C = digest(1), digest(2), digest(3)


@pytest.mark.parametrize(
    ("nights", "measured"),
    [
        ([(A, 1.0)] * 9, [0]),
        ([(A, 1.0), (B, 1.0), (C, 0.95), (A, 1.09)], [0]),
        # An unknown image is any image.
        ([(None, 1.0), (None, 2.0), (None, 2.0)], [0]),
        ([(None, 1.0), (A, 2.0), (A, 2.0)], [0]),
        ([(A, 1.0), (None, 2.0), (None, 2.0)], [0]),
        # The profile's own image, whose epochs turn out to cost something else.
        ([(A, 1.0), (A, 2.0), (A, 2.0)], [0]),
        # Another image that costs more or less: the first attempt shows it, the next one measures.
        ([(A, 1.0), (B, 1.5), (B, 1.5), (B, 1.5)], [0, 2]),
        ([(A, 1.0), (B, 0.5), (B, 0.5), (B, 0.5)], [0, 2]),
        # Later changes are measured after two attempts, then after four.
        ([(A, 1.0), (B, 2.0), (B, 2.0), *[(C, 4.0)] * 4], [0, 2, 5]),
        # The measurement's attempt ran the old image again, after which the old profile applies.
        ([(A, 1.0), (B, 2.0), (A, 1.0), (A, 1.0)], [0, 2]),
    ],
)
def test_limits_are_measured_again_if_another_image_costs_something_else(
    nights: list[tuple[str | None, float]], measured: list[int]
) -> None:
    assert Nights().run_all(nights).measured == measured


def test_the_profile_of_the_image_that_ran_last_is_used() -> None:
    nights = Nights().run_all([(A, 1.0), (B, 2.0), (B, 2.0), (B, 2.0), (A, 1.0), (A, 1.0), (C, 1.0), (C, 1.0)])
    assert nights.measured == [0, 2]
    # The first night with another image uses the profile of the image before.
    assert nights.used == [None, A, None, B, B, A, A, A]


@pytest.mark.parametrize(
    "changes",
    [
        {"attribution": "Shared"},
        {"power_limit_watts": None},
        {"power_limit_watts": 250.0},
        {"epoch_energy_joules": None},
        {"batch_size": SIZE + 1},
    ],
)
def test_attempts_that_cannot_be_compared_cause_no_measurement(changes: dict[str, Any]) -> None:
    nights = Nights()
    nights.run(A)
    nights.run(B, 2.0, **changes)
    nights.run(B, 2.0)
    assert nights.measured == [0]


def test_the_time_of_an_epoch_is_compared_too() -> None:
    nights = Nights()
    nights.run(A)
    nights.run(B, epoch_time_seconds=EPOCH_SECONDS * 1.2)
    nights.run(B)
    assert nights.measured == [0, 2]


def test_another_gpu_model_is_measured_whatever_the_image() -> None:
    nights = Nights()
    nights.run(A)
    nights.run(A, gpu_product="NVIDIA H100")
    nights.run(A, gpu_product="NVIDIA H100")
    assert nights.measured == [0, 2]


@given(st.lists(st.tuples(st.integers(0, 400), st.floats(0.2, 5.0)), min_size=1, max_size=150))
def test_no_sequence_of_images_is_measured_for_ever(nights: list[tuple[int, float]]) -> None:
    measured = Nights().run_all((digest(number), factor) for number, factor in nights).measured
    assert len(measured) <= 2 + 2 * math.log2(len(nights))


@pytest.mark.parametrize("period", exhaustive_after([3, 1, 2, 1000]))
def test_images_that_come_back_are_not_measured_for_ever(period: int) -> None:
    nights = [(digest(night % period), 1.0 + night % period % 7) for night in range(1000)]
    assert len(Nights().run_all(nights).measured) <= 2 + math.log2(1000)


def test_an_attempt_measures_again_after_a_moved_tag() -> None:
    backend = backend_with(mode="Fixed", objective={"maxEpochs": 50, "target": {"metric": "a", "threshold": 0}})
    profile = tuple(LimitMeasurement(watts, 120.0, 1.0, 0.1) for watts in (300.0, 400.0))
    measured = []
    for image, joules in ((A, 6000.0), (B, 3000.0), (B, 3000.0), (B, 3000.0)):
        backend.reconcile()
        (name,) = backend.running
        spec = backend.recurrences[name].spec
        measured.append(spec.profile_power_limits)
        backend.run_workload(name, image)
        points = profile if spec.profile_power_limits else ()
        backend.report(name, epoch=5, metric=1.0, joules=joules, seconds=50.0, finished=True, profile=points)
        if spec.power_limit_watts is not None:
            recurrence = backend.recurrences[name]
            held = recurrence.progress.model_copy(update={"power_limit_watts": spec.power_limit_watts})
            backend.recurrences[name] = recurrence.model_copy(update={"progress": held})
        backend.end_attempt(name)
        backend.advance(3600)
    assert measured == [True, False, True, False]
    assert {key.image_digest for key in backend.profiles} == {A, B}
