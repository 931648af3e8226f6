"""A pipeline whose profile has knobs beside the clock."""

import itertools
from pathlib import Path

from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem
from wattloop_planner.frequency.pipeline.profile_file import read_profile
from wattloop_planner.frequency.pipeline.schedules import OneForwardOneBackward

KNOBS = ("overlap", "sm")
CLOCKS = (1410, 1300, 1200, 1100, 1000)


def knob_profile(folder: Path, clocks: tuple[int, ...] = CLOCKS) -> Path:
    """The profile's file. The knob overlap computes and communicates at the same time: shorter, at a higher power."""
    rows = ["stage,instruction,frequency,time,energy,sm,overlap,comment"]
    for stage, kind, clock in itertools.product((0, 1), ("forward", "backward"), clocks):
        work = (0.05 + 70 / clock) * (2 if kind == "backward" else 1)
        for overlap, sm, time, power in (("no", "0", 1.0, 200), ("yes", "8", 0.9, 240), ("yes", "16", 0.85, 290)):
            watts = power + 2e-7 * clock**3
            rows.append(f"{stage},{kind},{clock},{work * time!r},{work * time * watts!r},{sm},{overlap},x")
    path = folder / "profile.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def knob_problem(folder: Path, *, microbatches: int = 4, clocks: tuple[int, ...] = CLOCKS) -> Problem:
    """Two stages of that profile."""
    graph = schedule_graph(OneForwardOneBackward(2, microbatches))
    return pipeline_problem(graph, read_profile(knob_profile(folder, clocks), KNOBS), 80.0)
