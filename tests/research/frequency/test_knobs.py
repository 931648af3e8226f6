"""Further knobs of an option: carried through planning, files, evaluation, emulation and groups."""

import io
from pathlib import Path

import pytest

from support.pipelines.knob_pipelines import KNOBS, knob_problem, knob_profile
from wattloop.errors import InputError, UsageError
from wattloop_planner.frequency.files.archive import archive_of, read_archive, write_archive
from wattloop_planner.frequency.pipeline.instruction_profiles import PlannedSetting
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Realised, evaluate, plan_energy_joules, plan_settings
from wattloop_planner.frequency.pipeline.profile_file import read_profile
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_research.frequency.baselines import max_frequency
from wattloop_research.frequency.clock_groups import grouped
from wattloop_research.frequency.emulation import Conditions, emulate
from wattloop_research.frequency.files.plan_file import read_plan, write_plan


@pytest.fixture
def profile_path(tmp_path: Path) -> Path:
    return knob_profile(tmp_path)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return knob_problem(tmp_path)


def test_plans_choose_among_knobs_and_carry_them_through_files(problem: Problem, tmp_path: Path) -> None:
    planning = plan_pipeline(problem)
    rows = [plan_settings(problem, plan) for plan in planning.plans]
    assert {setting.knobs for plan in rows for row in plan for setting in row} > {("no", "0"), ("yes", "16")}
    for plan, settings in zip(planning.plans, rows, strict=True):
        stream = io.StringIO()
        write_plan(stream, problem.graph, settings, [], KNOBS)
        path = tmp_path / "plan.py"
        path.write_text(stream.getvalue())
        assert read_plan(path, problem.graph, KNOBS) == settings
        expected = Realised(plan.time_seconds, plan_energy_joules(problem, plan))
        found = evaluate(problem, settings)
        assert (found.time_seconds, found.energy_joules) == pytest.approx(
            (expected.time_seconds, expected.energy_joules)
        )
    archive = archive_of(problem, planning, max_frequency(problem), schedule="1f1b")
    assert read_archive(write_archive(archive)).knobs == KNOBS


def test_a_plan_file_with_knobs_names_them(problem: Problem) -> None:
    stream = io.StringIO()
    write_plan(stream, problem.graph, plan_settings(problem, plan_pipeline(problem).plans[-1]), [], KNOBS)
    assert "('forward', 1410, {'overlap': 'yes', 'sm': '16'})" in stream.getvalue()


def test_at_maximum_clocks_the_fastest_knobs_count(problem: Problem) -> None:
    fastest = evaluate(problem, [[PlannedSetting(1410, ("yes", "16"))] * 8] * 2)
    assert max_frequency(problem) == fastest


def test_an_emulated_plan_keeps_its_knobs_while_a_clock_is_late(problem: Problem) -> None:
    settings = plan_settings(problem, plan_pipeline(problem).plans[0])
    without = emulate(problem, settings, Conditions(iterations=1)).mean
    assert (without.time_seconds, without.energy_joules) == pytest.approx(
        (evaluate(problem, settings).time_seconds, evaluate(problem, settings).energy_joules)
    )
    rows = [[PlannedSetting(1410, ("no", "0")), PlannedSetting(1000, ("yes", "16"))] * 4] * 2
    late = emulate(problem, rows, Conditions(iterations=1, clock_latency_seconds=1e6))
    # No change ever takes effect, but the second knobs do.
    expected = evaluate(problem, [[PlannedSetting(1410, ("no", "0")), PlannedSetting(1410, ("yes", "16"))] * 4] * 2)
    assert late.mean.time_seconds == pytest.approx(expected.time_seconds)


def test_groups_share_clocks_and_keep_knobs(problem: Problem) -> None:
    settings = [[PlannedSetting(1200, ("yes", "8")), PlannedSetting(1410, ("no", "0"))] * 4] * 2
    found = grouped(problem, settings, 0.5)
    assert [[setting.knobs for setting in row] for row in found] == [
        [setting.knobs for setting in row] for row in settings
    ]
    assert found != settings


def test_knobs_that_the_profile_lacks_are_refused_with_both_sides(problem: Problem, profile_path: Path) -> None:
    with pytest.raises(UsageError, match="found 0 knobs, expected overlap, sm as in --knobs"):
        evaluate(problem, [[1410] * 8] * 2)
    with pytest.raises(UsageError, match="found 1410 MHz overlap=yes sm=9, expected a frequency and knobs of the"):
        evaluate(problem, [[PlannedSetting(1410, ("yes", "9"))] * 8] * 2)
    with pytest.raises(InputError, match="column launch: found no such column"):
        read_profile(profile_path, ("launch",))
    with pytest.raises(UsageError, match="--knobs time: must name each further column of the profile once"):
        read_profile(profile_path, ("time",))
    with pytest.raises(InputError, match=r"a second row for stage 0, forward, 1410 MHz that disagrees"):
        read_profile(profile_path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("('forward', 1410)", "expected a text for each of the knobs overlap, sm"),
        ("('forward', 1410, {'sm': '8'})", "expected a text for each of the knobs overlap, sm"),
        ("('forward', 1410, {'sm': 8, 'overlap': 'no'})", "expected a text for each of the knobs overlap, sm"),
        ("('forward', 1410, ['sm'])", "expected a text for each of the knobs overlap, sm"),
        ("('backward', 1410, {'sm': '8', 'overlap': 'no'})", "found 'backward', expected the instruction forward"),
    ],
)
def test_an_entry_with_other_knobs_is_refused(problem: Problem, tmp_path: Path, entry: str, message: str) -> None:
    path = tmp_path / "plan.py"
    path.write_text(f"[[{', '.join([entry] * 8)}], []]")
    with pytest.raises(InputError, match=message):
        read_plan(path, problem.graph, KNOBS)
