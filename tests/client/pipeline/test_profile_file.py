"""The profile that ranks write: a later run measures what it lacks, and leaves one of another pipeline alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from wattloop.errors import UsageError
from wattloop.gpus.agent import GpuDescription, GraphicsClocks
from wattloop.pipeline.directives import DirectiveState
from wattloop.pipeline.local_profile import ClockProfile
from wattloop.pipeline.pipeline_place import pipeline_place
from wattloop.pipeline.plan_messages import Directive, InstructionMeasurement
from wattloop.pipeline.plan_source import PlannedRank
from wattloop.pipeline.profile_csv import ProfileFile, ProfileKey
from wattloop.wire.environment import RunEnvironment
from wattloop_planner.frequency.pipeline.profile_file import read_gpu_product, read_profile

KEY = ProfileKey("NVIDIA A40", "gpt", "data=1 tensor=1 pipeline=2 stages=2 microbatches=4 schedule=1F1B")
CLOCKS = (1500, 1200, 900)


def measured(stage: int, clock: int, *, joules: float | None = None) -> tuple[InstructionMeasurement, ...]:
    """Forward and backward of a stage; the energy falls with the clock unless it is given. 0 J: not known."""
    energy = clock / 100 if joules is None else joules or None
    return tuple(
        InstructionMeasurement(kind, stage, clock, 40, 0.1 * 1500 / clock, 0.001, energy, 0.01)
        for kind in ("forward", "backward")
    )


def store(
    path: Path,
    rank: int,
    *measurements: InstructionMeasurement,
    key: ProfileKey = KEY,
    blocking_watts: float | None = 10.0,
) -> None:
    ProfileFile(path, rank, key).store(measurements, blocking_watts)


def remaining(path: Path) -> tuple[int, ...]:
    (first, second) = (ProfileFile(path, rank, KEY).remaining(CLOCKS, 2) for rank in (0, 1))
    assert first == second
    return first


def test_a_later_run_measures_the_clocks_that_some_rank_lacks(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    assert remaining(path) == CLOCKS
    store(path, 0, *measured(0, 1500), *measured(0, 1200))
    assert remaining(path) == CLOCKS
    store(path, 1, *measured(1, 1500), *measured(1, 1200)[:1])
    assert remaining(path) == (1200, 900)
    # A later process of the rank keeps what the one before has measured.
    store(path, 1, *measured(1, 1200))
    assert remaining(path) == (900,)
    for rank in (0, 1):
        store(path, rank, *measured(rank, 900))
    assert remaining(path) == ()
    assert read_gpu_product(path) == "NVIDIA A40"
    assert all(len(options) == 3 for options in read_profile(path).options.values())


def test_a_clock_whose_energy_is_not_known_is_measured_again_and_a_known_energy_stays(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    for rank in (0, 1):
        store(path, rank, *(each for clock in CLOCKS for each in measured(rank, clock)))
    store(path, 1, *measured(1, 1200, joules=0))
    assert remaining(path) == ()
    path.unlink()
    for rank in (0, 1):
        store(
            path,
            rank,
            *(each for clock in CLOCKS for each in measured(rank, clock, joules=0 if clock == 900 else None)),
        )
    assert remaining(path) == (900,)


def test_two_clocks_are_measured_again_until_a_rank_could_tell_its_power_while_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    for rank in (0, 1):
        store(path, rank, *(each for clock in CLOCKS for each in measured(rank, clock)), blocking_watts=None)
    assert remaining(path) == CLOCKS[:2]
    store(path, 1, *measured(1, 1500), *measured(1, 1200))
    assert remaining(path) == ()
    # What is known stays.
    store(path, 1, *measured(1, 1500), *measured(1, 1200), blocking_watts=None)
    assert remaining(path) == ()


def test_a_rank_that_stopped_at_a_clock_lacks_none_below_it(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    store(path, 0, *measured(0, 1500, joules=10), *measured(0, 1200, joules=40))
    store(path, 1, *measured(1, 1500), *measured(1, 1200))
    # Rank 1 has not stopped.
    assert remaining(path) == (900,)
    store(path, 1, *measured(1, 1200, joules=40))
    assert remaining(path) == ()


GPUS = [GpuDescription("GPU-1", "NVIDIA A40", 0, None, GraphicsClocks(CLOCKS[::-1], (900, 1500)))]


def begun(profile: ClockProfile) -> tuple[bool, Directive | None]:
    """Whether a rank writes the profile, and what it measures for it."""
    rank = PlannedRank(
        pipeline_place(stage=0, stages=2), 4, "1F1B", "gpt", None, RunEnvironment.read({}), state := DirectiveState()
    )
    profile.prepare(rank)
    recorders = profile.begin(GPUS)
    found = state.in_force(1)
    return bool(recorders), found if found.number else None


NOTHING = (False, None)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"gpu_product": "NVIDIA A100"}, "NVIDIA A100, gpt, data=1"),
        ({"model": ""}, "NVIDIA A40, a model without a name, data=1"),
        ({"partition": "data=2"}, "NVIDIA A40, gpt, data=2"),
    ],
)
def test_a_profile_of_another_pipeline_is_left_alone_with_both_sides_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: dict[str, str], named: str
) -> None:
    path = tmp_path / "profile.csv"
    store(path, 0, *measured(0, 1500), key=replace(KEY, **other))
    assert begun(ClockProfile(path)) == NOTHING
    (message,) = caplog.messages
    assert message.startswith(f"no profile: {path} is of {named}")
    assert message.endswith(f"and this run of {KEY}; name another file, or delete it")


def test_clocks_that_the_gpus_do_not_have_are_not_profiled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "profile.csv"
    assert begun(ClockProfile(path, (1500, 1000))) == NOTHING
    (message,) = caplog.messages
    assert message == (
        "no profile: clocks: found 1000 MHz, which NVIDIA A40 does not support: it has 3 clocks from 900 to "
        "1500 MHz, the nearest is 900"
    )


def test_a_file_of_another_form_is_not_continued(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "profile.csv"
    path.write_text("stage,instruction,frequency,time,energy\n0,forward,1410,0.1,20\n")
    assert begun(ClockProfile(path)) == NOTHING
    assert "no profile: " in caplog.text
    assert "expected one column rank" in caplog.text


def test_what_is_left_is_measured_from_the_second_iteration_on(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    is_written, measure = begun(ClockProfile(path, 2, iterations=5))
    assert is_written
    assert (measure.clocks_megahertz, measure.first_iteration) == ((1500, 900), 1)
    for rank in (0, 1):
        store(path, rank, *measured(rank, 1500), *measured(rank, 900))
    assert begun(ClockProfile(path, 2)) == (True, None)


def test_no_clock_below_the_lowest_one_is_profiled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "profile.csv"
    _, measure = begun(ClockProfile(path, 2, lowest_clock=1000))
    assert measure.clocks_megahertz == (1500, 1200)
    assert begun(ClockProfile(path, lowest_clock=2000)) == NOTHING
    expected = "no profile: lowest_clock: found 2000 MHz, expected at most 1500 MHz, the highest clock"
    assert caplog.messages == [expected]
    with pytest.raises(UsageError, match="clocks: found 900 MHz, expected at least 1000 MHz"):
        ClockProfile(path, (1500, 900), lowest_clock=1000)
