"""Cost of learning the batch size: the policies with a cost model, the published algorithm, grid search, the default.

``python benchmarks/bandit.py [--seeds 20] [--write]`` prints the tables. ``--write`` writes them into
benchmarks/bandit.md, between its markers, and draws benchmarks/bandit-regret.png. The jobs are those of
tests/data/zeus-traces, a third of the 24 published ones. Each value is the mean over jobs of the mean over seeds;
behind ± is half its 90 % confidence interval, from the spread of the mean over jobs between the seeds.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from bandit_jobs import (
    FILES,
    GPUS,
    LIMITED_DEFAULT_NEVER_REACHES,
    LIMITED_DEFAULT_REACHES,
    OTHER_DEFAULTS,
    OTHER_TARGETS,
    WORKLOADS,
    all_jobs,
    each,
    job,
    limited,
)
from scipy.stats import t as student_t

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome
from wattloop_research.policy_figures import mean_curve, regret_curve, write_regret_plot
from wattloop_research.simulation.attempt_rows import write_attempts
from wattloop_research.simulation.overlapping_recurrences import simulate
from wattloop_research.simulation.policies import policy_named
from wattloop_research.simulation.simulation_options import JobOptions
from wattloop_research.simulation.simulation_summary import SeedSummary, costs_by_recurrence, mean_summary
from wattloop_research.simulation.simulator import Scenario
from wattloop_research.simulation.tasks import Task, TaskResult, in_sequence, run_groups, tasks_of

ROOT = Path(__file__).parents[1]
PAGE, FIGURE = ROOT / "benchmarks" / "bandit.md", ROOT / "benchmarks" / "bandit-regret.png"
POLICY = "thompsonSampling"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
# Exhausted attempts after which a further attempt with an arm that has never reached is futile.
FUTILE_AFTER = 2
COLUMNS = ("first 20", "first 50", "all", "last five", "loss, mean", "loss, max", "worst job over default", "dead")
HEADER = f"| jobs | policy | {' | '.join(COLUMNS)} |"
Rows = list[str]


@dataclass(frozen=True)
class MeasuredJob:
    """The simulations of a job.

    Attributes:
        summaries: Summary of each seed; None if the policy pruned every arm.
        futile: Attempts with arms that had been exhausted twice and had never reached the target.
        attempts: All attempts.
    """

    summaries: tuple[SeedSummary | None, ...]
    futile: int
    attempts: int

    @property
    def mean(self) -> SeedSummary:
        """Mean over the seeds that have a summary."""
        return mean_summary([each for each in self.summaries if each is not None])


MEASURED: dict[JobOptions, MeasuredJob] = {}


def simulated(jobs: Sequence[JobOptions]) -> list[tuple[JobOptions, list[tuple[Task, TaskResult]]]]:
    """Run jobs on all cores; returns each with its tasks and their results."""
    tasks = [task for options in jobs for task in tasks_of(options, FILES)]
    results = iter(run_groups([in_sequence(task) for task in tasks], lambda _: None))
    pairs = iter(tasks)
    return [(options, [(next(pairs), next(results)) for _ in options.seeds]) for options in jobs]


def measured(jobs: Sequence[JobOptions]) -> list[MeasuredJob]:
    """The simulations of some jobs, each of which is simulated once."""
    for options, of_job in simulated([options for options in jobs if options not in MEASURED]):
        results = [result for _, result in of_job]
        MEASURED[options] = MeasuredJob(
            tuple(result.summary for result in results),
            sum(futile_attempts(result) for result in results),
            sum(len(result.attempts) for result in results),
        )
    return [MEASURED[options] for options in jobs]


def half_interval(values: Sequence[float]) -> float:
    """Half the 90 % confidence interval of the mean of independent values."""
    if len(values) < 2:
        return math.nan
    return float(student_t.ppf(0.95, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def with_interval(values: Sequence[float], digits: int = 3) -> str:
    """The mean of independent values, and half its interval."""
    return f"{fmean(values):.{digits}f} ± {half_interval(values):.{digits}f}"


def over_jobs(found: Sequence[MeasuredJob], figure: Callable[[SeedSummary], float], digits: int = 3) -> str:
    """The mean over jobs of the mean over seeds, and half its interval."""
    by_seed = [
        fmean(map(figure, summaries))
        for of_seed in zip(*(each.summaries for each in found), strict=True)
        if (summaries := [summary for summary in of_seed if summary is not None])
    ]
    mean = fmean(figure(each.mean) for each in found if any(each.summaries))
    return f"{mean:.{digits}f} ± {half_interval(by_seed):.{digits}f}"


RATIOS: tuple[Callable[[SeedSummary], float], ...] = (
    lambda summary: summary.first_20,
    lambda summary: summary.first_50,
    lambda summary: summary.overall,
    lambda summary: summary.last_five,
)


def row(name: str, policy: str, jobs: Sequence[JobOptions]) -> str:
    """One row of the table: the mean over these jobs."""
    found = measured(jobs)
    seeds = [summary for each in found for summary in each.summaries]
    known = [summary for summary in seeds if summary is not None]
    worst = max((each for each in found if any(each.summaries)), key=lambda each: each.mean.against_default)
    over_default = [summary.against_default for summary in worst.summaries if summary is not None]
    ended = len(seeds) - len(known)
    figures = (
        *(over_jobs(found, ratio) for ratio in RATIOS),
        over_jobs(found, lambda summary: summary.max_loss, 2),
        f"{max(summary.max_loss for summary in known):.2f}",
        with_interval(over_default),
        f"{sum(summary.dead for summary in known)}" + (f", {ended} runs ended without an arm" if ended else ""),
    )
    return f"| {name} | {policy} | {' | '.join(figures)} |"


def table(policies: Iterable[str], sets: dict[str, Callable[[str], list[JobOptions]]]) -> Rows:
    """A table of every set of jobs under every policy."""
    lines = [HEADER, "|" + "---|" * (HEADER.count("|") - 1)]
    for name, jobs_under in sets.items():
        for policy in policies:
            lines.append(row(name, policy, jobs_under(policy)))
            sys.stderr.write(lines[-1] + "\n")
    return lines


def futile_attempts(result: TaskResult) -> int:
    """Attempts with arms that had been exhausted twice and had never reached the target."""
    exhausted: Counter[int] = Counter()
    futile = 0
    for attempt in result.attempts:
        futile += exhausted[attempt.batch_size] >= FUTILE_AFTER
        if attempt.result.outcome is Outcome.EXHAUSTED:
            exhausted[attempt.batch_size] += 1
        elif attempt.result.outcome is Outcome.REACHED:
            exhausted[attempt.batch_size] = -sys.maxsize
    return futile


def limits(seeds: str) -> Rows:
    """A table of the jobs with a binding limit of epochs."""
    lines = [
        "| jobs | policy | curves | first 20 | first 50 | all | last five | dead | futile attempts |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, jobs in (
        ("default reaches", LIMITED_DEFAULT_REACHES),
        ("default never reaches", LIMITED_DEFAULT_NEVER_REACHES),
    ):
        for policy, curves in ((POLICY, "yes"), (POLICY, "no"), ("zeus", "no")):
            found = measured(limited(jobs, seeds, policy=policy, curves=curves))
            dead = sum(each.mean.dead for each in found if any(each.summaries))
            ended = sum(summary is None for each in found for summary in each.summaries)
            futile = sum(each.futile for each in found) / sum(each.attempts for each in found)
            if not any(any(each.summaries) for each in found):
                figures, dead = " | | | ", 0
            else:
                figures = " | ".join(over_jobs(found, ratio) for ratio in RATIOS)
            note = f"{dead}" + (f", {ended} runs ended without an arm" if ended else "")
            lines.append(f"| {name} | {policy} | {curves} | {figures} | {note} | {futile:.2%} |")
            sys.stderr.write(lines[-1] + "\n")
    return lines


def ablation(seeds: str, few: str) -> Rows:
    """The default policy with and without curves."""
    lines = [HEADER.replace("policy", "policy, curves"), "|" + "---|" * (HEADER.count("|") - 1)]
    for name, options in (
        ("published", all_jobs(seeds)),
        ("η = 0", all_jobs(few, eta="0")),
        ("η = 1", all_jobs(few, eta="1")),
        ("other targets", each(few, "target_metric", OTHER_TARGETS)),
        ("other defaults", each(few, "default_batch_size", OTHER_DEFAULTS)),
        ("stop at epoch ends", all_jobs(few, stop="epoch-end")),
    ):
        for curves in ("with", "without"):
            jobs = [replace(given, policy=POLICY, curves=curves == "with") for given in options]
            lines.append(row(name, f"{POLICY}, {curves}", jobs))
            sys.stderr.write(lines[-1] + "\n")
    return lines


def after_switch(seeds: str) -> Rows:
    """Cost after a switch of the target, relative to the best fixed choice for the other target."""
    lines = ["| target from 40 on | policy | curves | first 20 after it | last ten |", "|---|---|---|---|---|"]
    for up in (True, False):
        for policy, curves in ((POLICY, "yes"), (POLICY, "no"), ("zeus", "no")):
            first: dict[int, list[float]] = {}
            last: dict[int, list[float]] = {}
            jobs = [replace(each, curves=curves == "yes") for each in switched(seeds, policy, up)]
            for _, of_job in simulated(jobs):
                for task, result in of_job:
                    scenario = task.scenario
                    costs = costs_by_recurrence(scenario.recurrences, result.attempts)
                    target = scenario.target_of(scenario.recurrences)
                    best = scenario.trace.best_fixed_cost_joules(target, scenario.max_epochs)
                    first.setdefault(task.seed, []).append(fmean(costs[40:60]) / best)
                    last.setdefault(task.seed, []).append(fmean(costs[-10:]) / best)
            figures = (with_interval([fmean(values) for values in by_seed.values()]) for by_seed in (first, last))
            name = "more expensive" if up else "cheaper"
            lines.append(f"| {name} | {policy} | {curves} | {' | '.join(figures)} |")
            sys.stderr.write(lines[-1] + "\n")
    return lines


def switched(seeds: str, policy: str, up: bool) -> list[JobOptions]:
    """Jobs whose target changes in recurrence 40, to a more expensive or a cheaper one."""
    jobs = []
    for gpu in GPUS:
        for dataset, targets in OTHER_TARGETS.items():
            for other in targets:
                published = WORKLOADS[dataset][2]
                low, high = sorted((published, other), key=float)
                first, then = (low, high) if up else (high, low)
                change = {"target_metric": first, "switch_at": "40", "switch_target_metric": then}
                jobs.append(job(dataset, gpu, seeds, policy=policy, recurrences="120", **change))
    return jobs


def moved(policy: str, seeds: str, folder: Path) -> list[JobOptions]:
    """Jobs that start from 30 recurrences with the same policy on the other GPU model."""
    jobs = []
    for gpu, other in (GPUS, GPUS[::-1]):
        file = folder / f"{policy}-{other}.csv"
        learned = simulated([job(dataset, other, seeds, policy=policy, recurrences="30") for dataset in WORKLOADS])
        with file.open("w") as stream:
            write_attempts(
                stream,
                ((o, t.seed, attempt) for o, of_job in learned for t, result in of_job for attempt in result.attempts),
            )
        jobs += [job(dataset, gpu, seeds, policy=policy, history=str(file)) for dataset in WORKLOADS]
    return jobs


def per_job(seeds: str) -> Rows:
    """The policies with a cost model, and the published one, by job."""
    lines = [HEADER, "|" + "---|" * (HEADER.count("|") - 1)]
    rows = (
        row(f"{dataset}, {gpu}", policy, [job(dataset, gpu, seeds, policy=policy)])
        for dataset in WORKLOADS
        for gpu in GPUS
        for policy in (POLICY, "zeus")
    )
    return [*lines, *rows]


def run_once(scenario: Scenario, policy: str, settings: dict[str, bool]) -> None:
    """Simulate a job under a policy."""
    simulate(scenario, policy_named(policy, **settings), 1)


def decide_once(policy: str, context: DecisionContext) -> None:
    """One decision of a policy that has seen nothing before."""
    policy_named(policy).decide(context)


def speed() -> Rows:
    """Time of 1,000 recurrences on one core, and of a decision after 1,000 observations of 20 arms."""
    task = tasks_of(job("movielens-1m", "a40", "1", recurrences="1000"), FILES)[0]
    lines = ["| what | policy | median of 5, s | least to most, s |", "|---|---|---|---|"]

    def measure(what: str, policy: str, work: Callable[[], object], digits: int) -> None:
        taken = sorted(timed(work) for _ in range(5))
        figures = f"{taken[2]:.{digits}f} | {taken[0]:.{digits}f} to {taken[4]:.{digits}f}"
        lines.append(f"| {what} | {policy} | {figures} |")

    for name in (POLICY, "zeus", "grid", "default"):
        settings = {"describe_arms": False} if name == POLICY else {}
        measure(
            "1,000 recurrences, 12 arms",
            name,
            partial(run_once, task.scenario, name, settings),
            3,
        )
    context = long_context()
    with_curves = replace(
        context,
        observations=tuple(replace(each, curve=long_curve(each.epochs)) for each in context.observations),
        target=RunTarget("accuracy", 0.9),
    )
    for name in (POLICY, "zeus"):
        what = "one decision after 1,000 observations of 20 arms"
        measure(what, name, partial(decide_once, name, context), 4)
    measure("the same with curves of 100 epochs", POLICY, partial(decide_once, POLICY, with_curves), 4)
    decision = Decision(64, ChoiceKind.TRIAL, "", stop_cost_joules=1e9)
    progress = PartialObservation(64, 8.0, 800.0, 8.0, 300.0, 100.0, 1.0, long_curve(20.0).before(8.0))
    policy = ThompsonSamplingPolicy()
    policy.decide(with_curves)
    measure("one review after them", POLICY, partial(policy.review, with_curves, decision, progress), 5)
    return lines


def long_curve(epochs: float) -> MetricCurve:
    """A curve with 100 evaluations."""
    shares = [(index + 1) / 100 for index in range(100)]
    return MetricCurve(tuple(epochs * each for each in shares), tuple(0.9 * math.sqrt(each) for each in shares))


def timed(work: Callable[[], object]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def long_context() -> DecisionContext:
    """A decision context after 1,000 runs of 20 arms, a tenth of them stopped."""
    sizes = tuple(2**i for i in range(3, 23))
    draw = random.Random(1)
    observations = [
        Observation(
            i,
            0,
            draw.choice(sizes),
            Outcome.STOPPED if i > 100 and draw.random() < 0.1 else Outcome.REACHED,
            epochs,
            epochs * 100,
            epochs,
            300.0,
            "A40",
            100.0,
            1.0,
        )
        for i, epochs in enumerate(draw.uniform(5, 20) for _ in range(1000))
    ]
    return DecisionContext(sizes, 1024, 0.5, 1000, 0, tuple(observations), 1, gpu_model="A40")


def draw_regret(seeds: str) -> None:
    """Draw the mean regret of each policy over the published jobs in the first 50 recurrences."""
    curves = {}
    for policy in (POLICY, "zeus", "grid", "default"):
        found = simulated(all_jobs(seeds, policy=policy, recurrences="50"))
        curves[policy] = mean_curve(
            [regret_curve(task.scenario, result.attempts) for _, of_job in found for task, result in of_job]
        )
    write_regret_plot(FIGURE, "Mean regret over 8 published jobs and 20 seeds", curves)


def main() -> int:
    """Measure, print and, on request, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="write benchmarks/bandit.md and the figure")
    arguments = parser.parse_args()
    seeds, few = f"1-{arguments.seeds}", f"1-{max(1, arguments.seeds // 4)}"
    published = table((POLICY, "zeus", "grid", "default"), {"published": lambda p: all_jobs(seeds, policy=p)})
    held_out = table(
        (POLICY, "zeus"),
        {
            "η = 0": lambda p: all_jobs(few, policy=p, eta="0"),
            "η = 1": lambda p: all_jobs(few, policy=p, eta="1"),
            "other targets": lambda p: each(few, "target_metric", OTHER_TARGETS, policy=p),
            "other defaults": lambda p: each(few, "default_batch_size", OTHER_DEFAULTS, policy=p),
            "stop at epoch ends": lambda p: all_jobs(few, policy=p, stop="epoch-end"),
        },
    )
    drift = table(
        (POLICY, "zeus"),
        {
            "more expensive target from 40 on": lambda p: switched(few, p, up=True),
            "cheaper target from 40 on": lambda p: switched(few, p, up=False),
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        transfer = table((POLICY, "zeus"), {"after 30 on the other GPU": lambda p: moved(p, seeds, Path(folder))})
    parts = [
        f"Published jobs, {arguments.seeds} seeds:", "", *published, "",
        f"By job, {arguments.seeds} seeds:", "", *per_job(seeds), "",
        f"Held out, {few.partition('-')[2]} seeds:", "", *held_out, "",
        f"Drift, {few.partition('-')[2]} seeds:", "", *drift, "",
        f"Binding limits of epochs, {few.partition('-')[2]} seeds:", "", *limits(few), "",
        f"Transfer, {arguments.seeds} seeds:", "", *transfer, "",
        f"With and without curves, {arguments.seeds} seeds for the published jobs, {few[2:]} for others:", "",
        *ablation(seeds, few), "",
        f"Switch of the target in recurrence 40, {few.partition('-')[2]} seeds:", "", *after_switch(few), "",
        "Speed, one core:", "", *speed(),
    ]  # fmt: skip
    print("\n".join(parts))
    if arguments.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(parts) + f"\n{END}{rest.split(END)[1]}")
        draw_regret(seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
