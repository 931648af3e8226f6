"""GPU frequency plans for pipeline-parallel training: the time-energy frontier, and plans along it.

An iteration of a pipeline is a graph of operations. Each operation runs at one GPU frequency and takes
the time and energy measured at that frequency. A GPU that waits draws the blocking power. The frontier is
the minimum energy for each iteration time.

Example:
    >>> from wattloop_planner.frequency import (
    ...     OneForwardOneBackward, Option, Profile, pipeline_problem, plan_frequencies, plan_pipeline, schedule_graph
    ... )
    >>> fast, slow = Option(1410, 0.10, 30.0), Option(1200, 0.12, 26.0)
    >>> profile = Profile("example", {(s, i): (fast, slow) for s in (0, 1) for i in ("forward", "backward")})
    >>> problem = pipeline_problem(schedule_graph(OneForwardOneBackward(stages=2, microbatches=2)), profile, 50.0)
    >>> planning = plan_pipeline(problem)
    >>> [round(plan.time_seconds, 2) for plan in planning.plans]
    [0.72, 0.7, 0.68, 0.66, 0.64, 0.62, 0.6]
    >>> [row.tolist() for row in plan_frequencies(problem, planning.plans[-1])]
    [[1410, 1200, 1200, 1410], [1410, 1410, 1410, 1410]]
"""

from wattloop_planner.frequency.choice_rules import ChosenPoint, CostRule, Deadline, FastestRule, choose_point
from wattloop_planner.frequency.pipeline.clock_interpolation import interpolated
from wattloop_planner.frequency.pipeline.graph import OperationGraph, schedule_graph
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, Profile
from wattloop_planner.frequency.pipeline.merged_profiles import ClockMeasurement, merged_profile
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.plans import Plan, Realised, evaluate, plan_energy_joules, plan_frequencies
from wattloop_planner.frequency.pipeline.profile_file import read_profile
from wattloop_planner.frequency.pipeline.schedules import (
    SCHEDULES,
    EarlyRecomputation,
    GPipe,
    Interleaved,
    OneForwardOneBackward,
    Schedule,
)
from wattloop_planner.frequency.solver.planning import Planning, plan_pipeline
from wattloop_planner.frequency.solver.relaxation import Frontier, relax

__all__ = [
    "SCHEDULES",
    "ChosenPoint",
    "ClockMeasurement",
    "CostRule",
    "Deadline",
    "EarlyRecomputation",
    "FastestRule",
    "Frontier",
    "GPipe",
    "Interleaved",
    "OneForwardOneBackward",
    "OperationGraph",
    "Option",
    "Plan",
    "Planning",
    "Problem",
    "Profile",
    "Realised",
    "Schedule",
    "choose_point",
    "evaluate",
    "interpolated",
    "merged_profile",
    "pipeline_problem",
    "plan_energy_joules",
    "plan_frequencies",
    "plan_pipeline",
    "read_profile",
    "relax",
    "schedule_graph",
]
