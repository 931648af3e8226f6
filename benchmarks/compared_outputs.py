"""Outputs of the product for a comparison before and after a refactoring. Deleted when issue 22 ends.

``python benchmarks/compared_outputs.py write FOLDER`` runs the commands and writes what they print and leave.
``python benchmarks/compared_outputs.py compare BEFORE AFTER`` names the files that differ; status 1 if any do.

Two runs of one commit are equal byte for byte. Moments, names made of moments, and the figures in `BY_THE_CLOCK` are
left out, since they depend on the time of the run; pictures are left out. The demo has six recurrences. All takes
two minutes of processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import difflib
import gzip
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
WATTLOOP = Path(sys.executable).with_name("wattloop")
DIGITS = ROOT / "examples" / "digits" / "job.yaml"
DEMO_RECURRENCES = 6
POLICIES = ("knowledgeGradient", "thompsonSampling", "zeus", "grid", "default")
SIZES = "8,16,32,64,128,256,512,1024"
# Network, optimizer, target metric, maximum epochs, default batch size of the published jobs.
WORKLOADS = {
    "cifar100": ("shufflenetv2", "adadelta", "0.6", "100", "1024"),
    "imagenet": ("resnet50", "adadelta", "0.65", "100", "256"),
    "movielens-1m": ("ncf", "adam", "0.41", "100", "1024"),
    "sentiment140": ("bert_base_uncased", "adamw", "0.84", "10", "128"),
}
# Another kind of job each: a target that changes, a binding limit of epochs, no curves, a limited window.
VARIANTS = (
    {"dataset": "cifar100", "switch_at": "15", "switch_target_metric": "0.5"},
    {"dataset": "imagenet", "max_epochs": "24"},
    {"dataset": "cifar100", "curves": "no"},
    {"dataset": "sentiment140", "window": "10"},
)
# Name: file, stages, blocking power, microbatches, further options.
PIPELINES = {
    "gpt3": ("stage_profile/gpt3-175b+a100_sxm_bf16.csv", 8, 83.64, 12, ("--baselines",)),
    "bloom": ("stage_profile/bloom+a40_bf16.csv", 8, 70.38, 8, ("--interpolate", "15", "--manifest", "bloom")),
    "gpt3-a40": ("stage_profile/gpt3-175b+a40_bf16.csv", 8, 70.38, 128, ()),
    "bert": ("reconstructed/A100_bert-huge-uncased_pp4_nmb32.csv", 4, 83.64, 8, ("--schedule", "gpipe")),
}
MOMENT = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
# The time at which a recurrence started is its slot, a part of its name.
SLOT = re.compile(r"\b1[5-9]\d{8}\b")
# The time that a command took.
ELAPSED = re.compile(r"; \d+\.\d+ s$", re.MULTILINE)
# How often a limit is reviewed depends on the machine's speed; a report is numbered by its time.
BY_THE_CLOCK = {"reviewedEpoch", "predictedEpoch", "sequence", "resourceVersion", "phase_seconds"}


def pinned(text: str, folder: Path) -> str:
    """A text without moments and temporary folders."""
    text = text.replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT")
    return ELAPSED.sub("; ELAPSED", SLOT.sub("SLOT", MOMENT.sub("MOMENT", text)))


def without_the_clock(value: object) -> object:
    """A JSON value without what depends on the time of the run."""
    if isinstance(value, dict):
        out = BY_THE_CLOCK | ({"stopCostJoules"} if "reviewedEpoch" in value else set())
        return {key: without_the_clock(each) for key, each in value.items() if key not in out}
    return [without_the_clock(each) for each in value] if isinstance(value, list) else value


class Outputs:
    """The folder of the outputs, and a temporary one for what the commands write."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.work = work

    def write(self, name: str, text: str) -> None:
        """Write a text without what depends on the run."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pinned(text, self.work))

    def write_json(self, name: str, value: object) -> None:
        """Write a JSON value without what depends on the run."""
        self.write(name, json.dumps(without_the_clock(value), indent=1, sort_keys=True) + "\n")

    def run(self, name: str, *words: object) -> str:
        """Run a command of Wattloop; write its status and what it prints, and return its standard output."""
        done = subprocess.run(
            [str(WATTLOOP), *map(str, words)],
            cwd=self.work,
            env={**os.environ, "COLUMNS": "120", "TZ": "UTC", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        self.write(f"{name}.out", f"status {done.returncode}\n{done.stdout}--- stderr\n{done.stderr}")
        return done.stdout


def simulated(outputs: Outputs) -> None:
    """Decisions on the reference traces."""
    rows = [
        {"dataset": dataset, "gpu": gpu, "policy": policy}
        for gpu in ("a40", "v100")
        for dataset in WORKLOADS
        for policy in POLICIES
    ]
    rows += [{"gpu": "v100", "policy": "knowledgeGradient", **variant} for variant in VARIANTS]
    traces = DATA / "zeus-traces"
    names = ("network", "optimizer", "target_metric", "max_epochs", "default_batch_size")
    fixed = {"train": str(traces / "summary_train.csv"), "seeds": "1-2", "recurrences": "40"}
    jobs = [
        {
            **dict(zip(names, WORKLOADS[row["dataset"]], strict=True)),
            **fixed,
            "power": str(traces / f"summary_power_{row['gpu']}.csv"),
            "job": f"{index}-{row['dataset']}",
            **row,
        }
        for index, row in enumerate(rows)
    ]
    # A variant may lack a column, and an option without a value is an error: one file for each set of columns.
    for number, columns in enumerate(sorted({tuple(sorted(job)) for job in jobs})):
        path = outputs.work / f"jobs-{number}.csv"
        write_rows(path, [job for job in jobs if tuple(sorted(job)) == columns])
        attempts = outputs.work / f"attempts-{number}.csv"
        outputs.run(f"simulate/{number}", "simulate", "--jobs", path, "--output", attempts)
        outputs.write(f"simulate/{number}.csv", attempts.read_text())


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Write rows of the same columns as CSV."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(stream.getvalue())


def planned(outputs: Outputs) -> None:
    """Frontiers and plans, choices from them, and their emulation."""
    for name, (file, stages, watts, microbatches, more) in PIPELINES.items():
        pipeline = ("--profile", DATA / "perseus" / file, "--stages", stages, "--microbatches", microbatches)
        pipeline = (*pipeline, "--blocking-power", watts)
        folder = outputs.work / name
        outputs.run(f"plan/{name}", "plan", *pipeline, "--output", folder, *more)
        for path in sorted(folder.rglob("*")):
            if path.name == "summary.json":
                outputs.write_json(f"plan/{name}/{path.name}", json.loads(path.read_text()))
            elif path.suffix == ".gz":
                outputs.write(f"plan/{name}/{path.stem}", gzip.decompress(path.read_bytes()).decode())
            elif path.is_file():
                outputs.write(f"plan/{name}/{path.relative_to(folder)}", path.read_text())
        outputs.run(f"plan/{name}-fastest", "plan", "choose", "--directory", folder, "--fastest")
        outputs.run(f"plan/{name}-eta", "plan", "choose", "--directory", folder, "--eta", "0.5", "--max-power", 3200)
        plans = sorted(folder.glob("freqs_pipeline_*.py"))[::13]
        schedule = ("--schedule", "gpipe") if "gpipe" in more else ()
        if "--interpolate" not in more:
            outputs.run(f"plan/{name}-evaluate", "plan", "evaluate", *pipeline, *schedule, *plans)
            noise = ("--noise", "0.02", "--iterations", 3, "--seed", 1, "--format", "json")
            outputs.run(f"plan/{name}-emulate", "pipeline", "emulate", *pipeline, *schedule, *noise, *plans[:1])


def recorded_runs(outputs: Outputs) -> None:
    """A published pipeline's recorded runs, and power limits selected from measured profiles."""
    for form in ("table", "csv", "json"):
        words = ("pipeline", "analyze", DATA / "perseus" / "prof_sample", "--format", form)
        outputs.run(f"recorded/perseus-{form}", *words)
    for path in sorted((DATA / "power-profiles").glob("*gpu*.csv")):
        with path.open(newline="") as stream:
            rows = [
                {
                    "power_limit_watts": row["window_name"].rpartition("_")[2],
                    "energy_joules": repr(sum(float(row[name]) for name in row if name.endswith("_energy"))),
                    "time_seconds": row["elapsed_time"],
                }
                for row in csv.DictReader(stream)
            ]
        profile = outputs.work / f"power-{path.name}"
        write_rows(profile, rows)
        for selector in ("energy", "time", "cost", "max-slowdown"):
            words = ("power", "select", "--profile", profile, "--selector", selector)
            outputs.run(f"power/{path.stem}-{selector}", *words)


def planned_ranks(outputs: Outputs) -> None:
    """Reports of ranks in virtual time and the directives that answer them, from registration to a straggler."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.pipelines.simulated_ranks import SimulatedOperator, exchange, ranks_of  # noqa: PLC0415

    for name, shape in {"two": {}, "four": {"stages": 4, "microbatches": 6}, "peers": {"data_parallel": 2}}.items():
        operator, ranks = SimulatedOperator(), ranks_of(shape.get("stages", 2) * shape.get("data_parallel", 1), **shape)
        for rank in ranks:
            rank.receive(operator.register(rank))
        told = []
        for turn in range(60):
            exchange(operator, ranks)
            if turn == 40:
                ranks[-1].iteration_seconds = 1.3
            told.append([dataclasses.asdict(rank.directive) for rank in ranks])
        frontier = operator.state.frontier
        outputs.write_json(f"pipeline/{name}-directives.json", told)
        outputs.write_json(f"pipeline/{name}-frontier.json", frontier and dataclasses.asdict(frontier))


def demo(outputs: Outputs) -> None:
    """The demo's statuses, CSV and JSON, and decisions from its history."""
    folder = outputs.work / "demo"
    simulation = ("--recurrences", DEMO_RECURRENCES, "--simulated-gpus", 1, "--seed", 1)
    outputs.run("demo/run", "run", DIGITS, *simulation, "--output", folder, "--format", "jsonl")
    outputs.write("demo/recurrences.csv", (folder / "recurrences.csv").read_text())
    for form in ("table", "csv", "json"):
        outputs.run(f"demo/history-{form}", "history", folder, "--format", form)
    with contextlib.closing(sqlite3.connect(folder / "wattloop.db")) as database:
        objects = "SELECT kind, name, body FROM objects WHERE kind != 'Workload'"
        for kind, name, body in database.execute(objects):
            outputs.write_json(f"demo/{kind}-{SLOT.sub('SLOT', name)}.json", json.loads(body))
    for policy in POLICIES:
        result, arms = outputs.work / f"replay-{policy}.csv", outputs.work / f"arms-{policy}.csv"
        words = ("--history", folder / "recurrences.csv", "--batch-sizes", SIZES, "--default-batch-size", "1024")
        outputs.run(f"replay/{policy}", "replay", "--policy", policy, *words, "--output", result, "--arms", arms)
        for path in (result, arms):
            outputs.write(f"replay/{path.name}", path.read_text() if path.exists() else "")


def validated(outputs: Outputs) -> None:
    """What the check of manifests says, without a cluster."""
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        outputs.run(f"validate/{path.parent.name}-{path.stem}", "validate", path)
    wrong = outputs.work / "wrong.yaml"
    wrong.write_text(DIGITS.read_text().replace("default: 1024", "default: 1000").replace("maxEpochs: 60", "epochs: 0"))
    outputs.run("validate/wrong", "validate", wrong)


PARTS: tuple[Callable[[Outputs], None], ...] = (demo, simulated, planned, recorded_runs, planned_ranks, validated)


def write(folder: Path) -> int:
    """Write all outputs into a new folder."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = Outputs(folder, Path(work))
        for done in [pool.submit(part, outputs) for part in PARTS]:
            done.result()
    sys.stdout.write(f"{len(files_of(folder))} files in {folder}\n")
    return 0


def files_of(folder: Path) -> Mapping[str, Path]:
    """The files of a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def compare(before: Path, after: Path) -> int:
    """Name the files that differ, each with its first difference."""
    one, other = files_of(before), files_of(after)
    different = 0
    for name in sorted({*one, *other}):
        if name not in one or name not in other:
            different += 1
            sys.stdout.write(f"{name}: only {'after' if name in other else 'before'}\n")
        elif one[name].read_bytes() != other[name].read_bytes():
            different += 1
            lines = [path.read_text().splitlines() for path in (one[name], other[name])]
            changes = [line for line in difflib.unified_diff(*lines, lineterm="", n=0) if line[:2] not in ("--", "++")]
            sys.stdout.write(f"{name}: {len(changes)} lines of difference\n")
            sys.stdout.writelines(f"    {line[:160]}\n" for line in changes[:4])
    sys.stdout.write(f"{different} of {len({*one, *other})} files differ\n")
    return int(different > 0 or not one)


def main() -> int:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("write").add_argument("folder", type=Path)
    comparison = actions.add_parser("compare")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "write":
        return write(arguments.folder)
    return compare(arguments.before, arguments.after)


if __name__ == "__main__":
    sys.exit(main())
