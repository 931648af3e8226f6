"""A folder with the small inputs that the rows of docs/coming-from.md are run on."""

import csv
import json
import shutil
from pathlib import Path

from support.pipelines.measured_pipelines import PERSEUS
from wattloop_planner.frequency.pipeline.instruction_profiles import canonical_instruction

BERT = "merak+bert-huge-uncased+custom:0,8,14,20,26+dp1+pp4+tp1+mbs8+nmb32"
KINDS = {"forward": 0.1, "backward": 0.2, "recomputation": 0.1, "forwardbackward": 0.3}
CLOCKS = (1410, 1200, 900)


def write_workspace(folder: Path) -> None:
    """Runs of Perseus' server, the published data in its layout, a profile, an export, a graph."""
    shutil.copytree(PERSEUS / "prof_sample", folder / "runs")
    # Run 1 at the limits of run 0, which warmed up.
    (folder / "base").mkdir()
    for number in (0, 1):
        shutil.copy(PERSEUS / "prof_sample" / "0.prof.json", folder / "base" / f"{number}.prof.json")
    _write_data(folder / "data")
    _write_profiled(folder / "profiled")
    with (folder / "profile.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("stage", "instruction", "frequency", "time", "energy", "blocking_power"))
        for stage in range(2):
            for kind, seconds in KINDS.items():
                for clock in CLOCKS:
                    watts = 100 + 150 * (clock / 1410) ** 2
                    row = (stage, canonical_instruction(kind), clock, seconds * 1410 / clock, 0.0, 60)
                    writer.writerow((*row[:4], row[3] * watts, row[5]))
    _write_graph(folder / "graph.json")


def _write_data(root: Path) -> None:
    plans = root / "perseus" / "A100" / "dp1+pp4+tp1" / f"{BERT}+PointSolution"
    shutil.copytree(PERSEUS / "prof_sample", plans)
    shutil.copy(PERSEUS / "fastest_plan" / "29.prof.json", plans)
    shutil.copytree(PERSEUS / "stage_profile", root / "emulation" / "stage_profile")
    frontiers = root / "emulation" / "iteration_time_energy" / "a100_sxm"
    frontiers.mkdir(parents=True)
    shutil.copy(PERSEUS / "published_frontier_gpt3-175b_a100_sxm_nmb12.csv", frontiers / "gpt3-175b_bf16_mb12.csv")
    tables = root / "zeus" / "csv" / "A100"
    tables.mkdir(parents=True)
    shutil.copy(PERSEUS / "zeus_global_a100.csv", tables / "zeus_global.csv")


def _write_profiled(folder: Path) -> None:
    """What Perseus' profiler dumps: each rank at one clock in each run."""
    folder.mkdir()
    for number, clock in enumerate(CLOCKS):
        seconds = {kind: KINDS[kind] * 1410 / clock for kind in ("forward", "backward")}
        watts = 100 + 150 * (clock / 1410) ** 2
        ranks = [
            {
                "rank": rank,
                "iter_time": [2.0] * 4,
                "iter_energy": [300.0] * 4,
                "time_breakdown": {kind: [[each] * 2] * 4 for kind, each in seconds.items()},
                "energy_breakdown": {kind: [[each * watts] * 2] * 4 for kind, each in seconds.items()},
            }
            for rank in range(2)
        ]
        (folder / f"{number}.prof.json").write_text(json.dumps(ranks))
        settings = [{"rank": rank, "power_states": [clock] * 4} for rank in range(2)]
        (folder / f"{number}.sched.json").write_text(json.dumps(settings))


def _write_graph(path: Path) -> None:
    kinds = ("forward", "backward")
    operations = [{"stage": stage, "instruction": kind, "microbatch": 0} for stage in range(2) for kind in kinds]
    path.write_text(json.dumps({"operations": operations, "order": [[0, 1], [2, 3]], "edges": [[0, 2], [3, 1]]}))
