"""What experiment trackers get to know of an attempt."""

import dataclasses

import pytest

from wattloop.run.experiment_tags import tags_of
from wattloop.wire.environment import RunEnvironment
from wattloop.wire.training_messages import GpuEnergy, LimitMeasurement, Report

GPU = "GPU-00000000-0000-0000-0000-00000000000"


def report_of(*joules: int, max_watts: float = 300.0) -> Report:
    gpus = tuple(
        GpuEnergy(f"{GPU}{index}", 7000, 7000 + 1000 * each, 50.0, 150.0 + index) for index, each in enumerate(joules)
    )
    return Report("p", 1, 1, gpus=gpus, max_power_limit_watts=max_watts, power_limit_watts=250.0)


def test_energy_is_the_sum_over_gpus_and_cost_weighs_it_with_the_time() -> None:
    tags = tags_of(RunEnvironment(job="team/digits", recurrence="digits-7-2", batch_size=64), report_of(1000, 3000))
    assert tags == {
        "job": "team/digits",
        "recurrence": "digits-7-2",
        "attempt": 2,
        "batch_size": 64,
        "power_limit_watts": 250.0,
        "energy_joules": 4000.0,
        "time_seconds": 101.0,
        "cost_joules": 0.5 * 4000 + 0.5 * 300 * 101,
    }


@pytest.mark.parametrize(("measured", "told"), [((300.0, 250.0), 250.0), ((300.0,), None)])
def test_a_limit_that_is_held_to_measure_it_is_none_that_the_attempt_ran_with(
    measured: tuple[float, ...], told: float | None
) -> None:
    profile = tuple(LimitMeasurement(watts, 100.0, 1.0, 1.0) for watts in measured)
    environment = RunEnvironment(job="team/digits", recurrence="digits-7-2", profile_power_limits=True)
    tags = tags_of(environment, dataclasses.replace(report_of(1000), profile=profile))
    assert tags.get("power_limit_watts") == told


@pytest.mark.parametrize(
    ("report", "ranks", "missing"),
    [
        (report_of(), 1, {"energy_joules", "time_seconds", "cost_joules"}),
        (report_of(1000), 2, {"energy_joules", "time_seconds", "cost_joules"}),
        (report_of(1000, max_watts=0.0), 1, {"cost_joules"}),
    ],
)
def test_what_a_process_does_not_know_is_left_out(report: Report, ranks: int, missing: set[str]) -> None:
    names = set(tags_of(RunEnvironment(job="team/digits", recurrence="digits-7-2", ranks=ranks), report))
    assert (
        names & {"energy_joules", "time_seconds", "cost_joules"}
        == {"energy_joules", "time_seconds", "cost_joules"} - missing
    )
