"""Which trial runs: policy `thompsonSampling` beside other choices from the same model, and the published policy.

``python benchmarks/bandit_choices.py [--seeds 3]`` prints the table of benchmarks/bandit.md. The choices:

- "proposals": policy `thompsonSampling`. Nine joint samples propose, the trial that is worth most runs.
- "greatest value": of all trials, the one that is worth most runs, whatever samples propose.
- "one sample": Thompson sampling as it is. What is cheapest in one joint sample of all arms runs, whatever it is worth.
- "zeus": the published policy.

The jobs are those of benchmarks/bandit.py with their other weights of energy and other targets, and 18 of another
laboratory (tests/data/curves: three workloads, two targets, three defaults). That laboratory published one training at
each batch size. So a run here takes that training's epochs times a factor, whose logarithm has the standard deviation
0.08; a step of a larger batch than fits the GPU is several steps.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np
from bandit_jobs import FILES, OTHER_TARGETS, all_jobs, each

from wattloop_planner.bandit.cost_inputs import DecisionInputs
from wattloop_planner.bandit.gaussian_process import Indices
from wattloop_planner.bandit.policy import ChoiceKind, Decision, Policy
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_research.simulation.overlapping_recurrences import simulate
from wattloop_research.simulation.policies import policy_named
from wattloop_research.simulation.process_pool import map_in_processes
from wattloop_research.simulation.simulation_options import JobOptions, options_of_command
from wattloop_research.simulation.simulation_summary import SeedSummary, mean_summary, summarise
from wattloop_research.simulation.tasks import Task, tasks_of

CURVES = Path(__file__).parents[1] / "tests" / "data" / "curves"
RUNS, NOISE_SD, LIMIT_WATTS, POWER_WATTS = 16, 0.08, 70, 60
CHOICES = ("proposals", "greatest value", "one sample", "zeus")
HEADER = "| jobs | choice | first 20 | first 50 | all | last five | dead |"


@dataclass(frozen=True)
class Laboratory:
    """A workload of the other laboratory.

    Attributes:
        targets: Values of the metric.
        rises: Whether the metric rises.
        defaults: Default batch sizes.
    """

    targets: tuple[float, float]
    rises: bool
    defaults: tuple[int, int, int]


WORKLOADS = {
    "cifar10": Laboratory((0.9, 0.93), True, (256, 512, 1024)),
    "deepspeech2": Laboratory((30.0, 26.0), False, (40, 80, 160)),
    "ncf": Laboratory((0.67, 0.685), True, (1024, 2048, 4096)),
}


class GreatestValuePolicy(ThompsonSamplingPolicy):
    """Every trial that is worth its cost is proposed."""

    def _proposals(self, inputs: DecisionInputs, trials: Indices) -> dict[int, int]:  # noqa: ARG002 - the policy's
        return dict.fromkeys(trials.tolist(), self.samples)


class OneSamplePolicy(ThompsonSamplingPolicy):
    """The arm that is cheapest in one joint sample runs, up to twice the incumbent's expected cost."""

    def _choose(self, inputs: DecisionInputs) -> Decision:
        arms = inputs.usable_arms(np.flatnonzero(inputs.may_run))
        sample = inputs.cost.samples(np.random.default_rng(inputs.context.seed), 1)[0]
        chosen = int(arms[np.argmin(sample[arms])])
        stop_cost_joules = None
        if inputs.cost.level_known and inputs.stops_now <= 1:
            stop_cost_joules = 2 * (inputs.start_up_joules + inputs.unit_joules)
        return inputs.decision(chosen, ChoiceKind.SAMPLE, "", stop_cost_joules, ())


def policy_of(choice: str) -> Policy:
    """The policy of a choice."""
    if choice == "zeus":
        return policy_named("zeus")
    kinds = {"proposals": ThompsonSamplingPolicy, "greatest value": GreatestValuePolicy, "one sample": OneSamplePolicy}
    return kinds[choice](describe_arms=False)


def table(path: Path) -> list[dict[str, float]]:
    """The rows of a file of numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def epochs_to_target(name: str, target: float) -> dict[int, float]:
    """The passes over the data that the training at each batch size took to a target, where it reached it."""
    rows = table(CURVES / f"{name}.csv")
    first = rows[0]
    examples = first["batch_size"] * first["iterations"] / first["epoch"]
    found: dict[int, float] = {}
    for row in rows:
        reached = row["metric"] >= target if WORKLOADS[name].rises else row["metric"] <= target
        if reached:
            found.setdefault(int(row["batch_size"]), row["iterations"] * row["batch_size"] / examples)
    return found


def epoch_seconds(name: str, batch_size: int) -> float:
    """The time of one pass over the data, in steps of the largest batch that fits the GPU."""
    rows = table(CURVES / f"{name}.csv")
    examples = rows[0]["batch_size"] * rows[0]["iterations"] / rows[0]["epoch"]
    steps = table(CURVES / f"{name}-step-time.csv")
    sizes, seconds = [row["local_bsz"] for row in steps], [row["step_time"] for row in steps]
    parts = math.ceil(batch_size / sizes[-1])
    return examples / batch_size * parts * float(np.interp(batch_size / parts, sizes, seconds))


def laboratory_jobs(folder: Path, seeds: str) -> list[JobOptions]:
    """The jobs of the other laboratory, whose traces are written into a folder."""
    train, power = folder / "train.csv", folder / "power.csv"
    draw = random.Random(1)
    paths = ["dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch\n"]
    epochs = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"]
    for name, workload in WORKLOADS.items():
        reached = [epochs_to_target(name, target) for target in workload.targets]
        for size in sorted(set(reached[0]) & set(reached[1])):
            epochs.append(f"{name},net,{size},sgd,{LIMIT_WATTS},{epoch_seconds(name, size)!r},{POWER_WATTS}\n")
            for target, of_target in zip(workload.targets, reached, strict=True):
                for run in range(RUNS):
                    taken = math.ceil(of_target[size] * math.exp(draw.gauss(0, NOISE_SD)))
                    paths.append(f"{name},net,{size},sgd,0.1,{run},{target},{taken}\n")
    train.write_text("".join(paths), encoding="utf-8")
    power.write_text("".join(epochs), encoding="utf-8")
    given = {"train": str(train), "power": str(power), "network": "net", "optimizer": "sgd", "max_epochs": "1000"}
    return [
        options_of_command(
            given
            | {"job": name, "gpu": "T4", "dataset": name, "recurrences": "60", "seeds": seeds}
            | {"target_metric": str(target), "default_batch_size": str(default)}
        )
        for name, workload in WORKLOADS.items()
        for target in workload.targets
        for default in workload.defaults
    ]


def run(item: tuple[str, Task]) -> SeedSummary:
    """Simulate a job under a choice."""
    choice, task = item
    default = list(simulate(replace(task.scenario, optimise_power=False), policy_named("default"), task.seed))
    return summarise(task.scenario, list(simulate(task.scenario, policy_of(choice), task.seed)), default)


def rows(name: str, jobs: Sequence[JobOptions], choices: Iterable[str] = CHOICES) -> Iterable[str]:
    """The rows of some jobs: the mean over jobs of the mean over seeds."""
    for choice in choices:
        tasks = [(choice, task) for options in jobs for task in tasks_of(options, FILES)]
        results = iter(map_in_processes(run, tasks, len(os.sched_getaffinity(0)), lambda _: None))
        means = [mean_summary([next(results) for _ in options.seeds]) for options in jobs]
        figures = [
            fmean(value)
            for value in zip(*((m.first_20, m.first_50, m.overall, m.last_five) for m in means), strict=True)
        ]
        dead = sum(mean.dead for mean in means)
        yield f"| {name} | {choice} | {' | '.join(f'{figure:.3f}' for figure in figures)} | {dead} |"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each job (3)")
    seeds = f"1-{parser.parse_args().seeds}"
    print(HEADER, "|" + "---|" * (HEADER.count("|") - 1), sep="\n")
    with tempfile.TemporaryDirectory() as folder:
        for name, jobs in (
            ("published", all_jobs(seeds)),
            ("η = 0 and η = 1", [*all_jobs(seeds, eta="0"), *all_jobs(seeds, eta="1")]),
            ("other targets", each(seeds, "target_metric", OTHER_TARGETS)),
            ("another laboratory", laboratory_jobs(Path(folder), seeds)),
        ):
            for line in rows(name, jobs):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
