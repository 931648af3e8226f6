"""Savings of emulated large models: published frontiers and plans of our own from the same stage profiles.

The published emulation (Chung et al. 2024, figures 7 and 8, table 6) has many data-parallel pipelines, of
which one is the straggler. The straggler runs as without one, and the others run the plan that a rule chooses. Times
of the published profiles are a tenth of the emulated model's, and their energies those of one of eight
tensor-parallel ranks; savings do not depend on it, and the values are left as they are in the files.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wattloop.files.csv_table import read_table
from wattloop_planner.frequency.choice_rules import SLOWDOWNS, FastestRule, choose_point
from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.plans import Realised, plan_energy_joules
from wattloop_planner.frequency.pipeline.profile_file import read_profile
from wattloop_planner.frequency.pipeline.schedules import OneForwardOneBackward
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_research.frequency.baselines import max_frequency
from wattloop_research.frequency.evaluation.measured_savings import (
    Choice,
    MeasuredPoint,
    intrinsic_saving,
    least_energy_in_time,
    saving_percent,
    slowest_in_time,
    straggler_saving,
)

FRONTIER_FILE = re.compile(r"(?P<model>.+)_(?P<precision>[^_]+)_mb(?P<microbatches>[1-9]\d{0,5})\.csv")
# Of all pipelines together in an iteration, in the published emulation.
ALL_MICROBATCHES = 1536
PUBLISHED, OURS = "published", "wattloop"
PLANS_OF_OURS = 200


@dataclass(frozen=True)
class EmulatedModel:
    """The plans of an emulated pipeline.

    Attributes:
        waiting_watts: Power of all stages while they wait.
    """

    model: str
    device: str
    microbatches: int
    origin: str
    base: MeasuredPoint
    fastest: MeasuredPoint
    plans: tuple[MeasuredPoint, ...]
    waiting_watts: float

    @property
    def pipelines(self) -> int:
        """Number of data-parallel pipelines."""
        return max(ALL_MICROBATCHES // self.microbatches, 1)


def emulated_models(data: Path, blocking_watts: dict[str, float]) -> Iterator[EmulatedModel]:
    """The models of ``emulation/`` with published frontiers, each with these and with our plans.

    Args:
        data: The folder, whose `emulation` may be missing.
        blocking_watts: Blocking power of each device, as its files name it.

    Raises:
        InputError: A file is invalid, or a frontier has no profile.
    """
    folder = data / "emulation"
    for file in sorted((folder / "iteration_time_energy").glob("*/*.csv"), key=_order):
        match = FRONTIER_FILE.fullmatch(file.name)
        device = file.parent.name
        if match is None or device not in blocking_watts:
            continue
        microbatches = int(match["microbatches"])
        profile = read_profile(folder / "stage_profile" / f"{match['model']}+{device}_{match['precision']}.csv")
        stages = 1 + max(stage for stage, _ in profile.options)
        problem = pipeline_problem(
            schedule_graph(OneForwardOneBackward(stages, microbatches)), profile, blocking_watts[device]
        )
        key = match["model"], device, microbatches
        yield _published(file, key, problem)
        yield _ours(key, problem)


def _order(file: Path) -> tuple[str, str, int]:
    match = FRONTIER_FILE.fullmatch(file.name)
    return (file.name, file.parent.name, 0) if match is None else (match["model"], file.parent.name, int(match[3]))


def _published(file: Path, key: tuple[str, str, int], problem: Problem) -> EmulatedModel:
    plans = tuple(
        MeasuredPoint(None, Realised(row.number("time", above=0), row.number("energy", above=0)))
        for row in read_table(file, ("time", "energy"))
    )
    fastest = min(plans, key=lambda plan: plan.realised.time_seconds)
    # The published baseline takes the time of the fastest plan, and waits for the rest of it.
    longest = max_frequency(problem)
    seconds = fastest.realised.time_seconds
    joules = longest.energy_joules + problem.waiting_power_watts * (seconds - longest.time_seconds)
    base = MeasuredPoint(None, Realised(seconds, joules))
    return EmulatedModel(*key, PUBLISHED, base, fastest, plans, problem.waiting_power_watts)


def _ours(key: tuple[str, str, int], problem: Problem) -> EmulatedModel:
    planning = plan_pipeline(problem, PLANS_OF_OURS)
    plans = [Realised(plan.time_seconds, plan_energy_joules(problem, plan)) for plan in planning.plans]
    base = max_frequency(problem)
    chosen = choose_point(plans, FastestRule(), max_clocks=base)
    points = tuple(MeasuredPoint(number, plan) for number, plan in enumerate(plans))
    return EmulatedModel(
        *key, OURS, MeasuredPoint(None, base), points[chosen.plan], points, problem.waiting_power_watts
    )


# Least energy in time is published.
RULES: tuple[tuple[str, Choice], ...] = ((PUBLISHED, least_energy_in_time), ("slowest", slowest_in_time))


def emulated_savings(found: EmulatedModel, slowdowns: Sequence[float] = SLOWDOWNS) -> Iterator[dict[str, Any]]:
    """What a model's plans save beside each straggler, by each rule: the rows of ``emulation.csv``.

    ``slowdown`` is the time of the straggler in times of the baseline, ``saving_percent`` the saving of a pipeline
    beside it, and ``plan_time_percent`` the time of the chosen plan in percent of the baseline's.
    """
    intrinsic = intrinsic_saving(found.base, found.fastest).saving_percent
    others = found.pipelines - 1
    for slowdown in slowdowns:
        for rule, choice in RULES:
            beside = straggler_saving(found.base, found.plans, slowdown, found.waiting_watts, choice)
            if beside is None:
                continue
            base_joules = found.base.realised.energy_joules * slowdown + others * beside.base_energy_joules
            joules = found.fastest.realised.energy_joules * slowdown + others * beside.energy_joules
            yield {
                "model": found.model,
                "device": found.device,
                "microbatches": found.microbatches,
                "pipelines": found.pipelines,
                "plans": found.origin,
                "rule": rule,
                "slowdown": slowdown,
                "intrinsic_saving_percent": intrinsic,
                "saving_percent": beside.saving_percent,
                "all_pipelines_saving_percent": saving_percent(base_joules, joules),
                "plan_time_percent": 100 * beside.plan.realised.time_seconds / found.base.realised.time_seconds,
            }
