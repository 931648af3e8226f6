"""Frequency plans: time, memory and distance to the bound, compared with Lowtime in the same run.

    python benchmarks/frequency.py                                # without Lowtime, about two minutes
    python benchmarks/frequency.py --lowtime-python OTHER/bin/python    # an environment with `pip install lowtime`

Each case runs in its own process, so that its peak memory is measured. Of --repeat runs, the one of minimum CPU
time of the planning thread counts. The profiles are the published ones in tests/data/perseus. The report goes to
stdout and, with --output, to a JSON file.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from wattloop_planner.frequency import (
    OneForwardOneBackward,
    Option,
    Planning,
    Problem,
    Profile,
    evaluate,
    pipeline_problem,
    plan_pipeline,
    read_profile,
    relax,
    schedule_graph,
)

PERSEUS = Path(__file__).resolve().parents[1] / "tests" / "data" / "perseus"
GPT3, BLOOM = "stage_profile/gpt3-175b+a100_sxm_bf16.csv", "stage_profile/bloom+a40_bf16.csv"
GPT3_A40, BLOOM_A100 = "stage_profile/gpt3-175b+a40_bf16.csv", "stage_profile/bloom+a100_sxm_bf16.csv"
BERT, RESNET = "reconstructed/A100_bert-huge-uncased_pp4_nmb32.csv", "reconstructed/A100_wide-resnet101_8_pp4_nmb24.csv"
POWER = {GPT3: 83.64, BLOOM: 70.38, GPT3_A40: 70.38, BLOOM_A100: 83.64, BERT: 83.64, RESNET: 83.64}
# Profile, stages, microbatches, target seconds.
TARGETS = [
    *(
        (file, 8, microbatches, target)
        for file in (GPT3, BLOOM, GPT3_A40, BLOOM_A100)
        for microbatches, target in ((12, 0.1), (96, 1.0), (256, 5.0))
    ),
    *((file, 16, 2048, 5.0) for file in (GPT3, BLOOM, GPT3_A40, BLOOM_A100)),
    (BERT, 4, 32, 1.0),
    (RESNET, 4, 24, 1.0),
]
GROWTH = (12, 24, 48, 96, 192, 384, 640, 1024)
AGAINST_LOWTIME = [
    (GPT3, 8, 12),
    (BLOOM, 8, 12),
    (GPT3_A40, 8, 12),
    (BLOOM_A100, 8, 12),
    (BERT, 4, 32),
    (RESNET, 4, 24),
    (BLOOM, 8, 4),
    (BERT, 4, 4),
]
H200_CLOCKS = range(345, 1981, 15)
# Microbatches of eight stages: target seconds.
FREQUENCY_TARGETS = {12: 0.1, 96: 1.0, 256: 5.0}


def widened(file: str, stages: int) -> Profile:
    """A published profile; for more stages, its first stage is repeated and its last stage ends the pipeline."""
    profile = read_profile(PERSEUS / file)
    last = max(stage for stage, _ in profile.options)
    if stages == last + 1:
        return profile
    sources = [0] * (stages - 1) + [last]
    names = ("forward", "backward")
    return Profile(
        file, {(s, name): profile.options[source, name] for s, source in enumerate(sources) for name in names}
    )


def modelled(clocks: Iterable[int], noise: float) -> Profile:
    """Eight unequal stages: time partly bound by the clock, power growing with it, both with measurement noise."""
    random = np.random.default_rng(7)
    clocks = list(clocks)
    options = {}
    for stage in range(8):
        for name, base in (("forward", 0.05), ("backward", 0.1)):
            scale = base * random.uniform(0.9, 1.1)
            jitter = 1 + noise * np.random.default_rng(stage).standard_normal((1981, 2))
            times = {f: scale * (0.25 + 0.75 * 1980 / f) * float(jitter[f, 0]) for f in clocks}
            options[stage, name] = tuple(
                Option(f, times[f], times[f] * (120 + 480 * (f / 1980) ** 2.6) * float(jitter[f, 1]))
                for f in sorted(clocks, reverse=True)
            )
    return Profile(f"{len(clocks)} frequencies, {noise:.1%} noise", options)


def planned(
    profile: Profile, stages: int, microbatches: int, power: float, **how: Any
) -> tuple[Problem, Planning, tuple[float, float]]:
    """Plan a 1F1B pipeline; wall and CPU seconds from the profile in memory to the plans."""
    started, busy = time.perf_counter(), time.thread_time()
    graph = schedule_graph(OneForwardOneBackward(stages, microbatches))
    problem = pipeline_problem(graph, profile, power)
    planning = plan_pipeline(problem, **how)
    return problem, planning, (time.perf_counter() - started, time.thread_time() - busy)


def walked(problem: Problem) -> float:
    """CPU seconds of the relaxation alone, with every breakpoint."""
    busy = time.thread_time()
    relax(problem)
    return time.thread_time() - busy


def one_case(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case in this process."""
    modelled_one = "clocks" in case
    profile = modelled(case["clocks"], case["noise"]) if modelled_one else widened(case["file"], case["stages"])
    how = {"use_steady_state": case.get("steady", True)}
    runs = [planned(profile, case["stages"], case["microbatches"], case["power"], **how) for _ in range(case["repeat"])]
    problem, planning, (seconds, cpu_seconds) = min(runs, key=lambda run: run[2][1])
    walks = [walked(problem) for _ in range(case["repeat"])] if case.get("walk") else []
    gaps = planning.gaps * 100
    return {
        "operations": problem.graph.operations,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "relaxation_seconds": planning.phase_seconds["relaxation"],
        "breakpoints": len(planning.frontier.times_seconds),
        "breakpoints_per_cpu_second": len(planning.frontier.times_seconds) / min(walks) if walks else None,
        "plans": len(planning.plans),
        # 0.0 if the fastest plan takes exactly as long as every operation at its fastest option.
        "fastest_above_min_seconds": planning.plans[-1].time_seconds - problem.pipeline.realise(problem.fastest)[0],
        "gap_mean_percent": float(gaps.mean()),
        "gap_max_percent": float(gaps.max()),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_own_process(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case in its own process."""
    command = [sys.executable, "-P", __file__, "--case", json.dumps(case)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {**case, **json.loads(done.stdout)}


def against_lowtime(python: str, file: str, stages: int, microbatches: int) -> dict[str, Any]:
    """Compare both planners on one pipeline: seconds, distance to the bound, and the worst deadline."""
    power = POWER[file]
    # -P, so that the script's folder does not shadow modules of the standard library.
    script = Path(__file__).with_name("lowtime_plans.py")
    command = [python, "-P", script, PERSEUS / file, stages, microbatches, power]
    done = subprocess.run([str(argument) for argument in command], check=True, capture_output=True, text=True)
    lowtime_result = json.loads(done.stdout)
    problem, forty, (seconds, _) = planned(read_profile(PERSEUS / file), stages, microbatches, power)
    every = plan_pipeline(problem, None)
    found = [evaluate(problem, plan) for plan in lowtime_result["plans"]]
    waiting = problem.waiting_power_watts
    lowtime = [(plan.time_seconds, plan.energy_joules - waiting * plan.time_seconds) for plan in found]
    bounds = forty.frontier.bound_joules([time for time, _ in lowtime])
    gaps = np.array([plan.energy_joules for plan in found]) / bounds - 1
    return {
        "file": file,
        "operations": problem.graph.operations,
        "lowtime_seconds": lowtime_result["seconds"],
        "seconds": seconds,
        "times_faster": lowtime_result["seconds"] / seconds,
        "lowtime_gap_mean_percent": float(gaps.mean() * 100),
        "gap_mean_percent": float(forty.gaps.mean() * 100),
        "max_above_lowtime_percent_all": max_above(every, lowtime, waiting),
        "max_above_lowtime_percent_40": max_above(forty, lowtime, waiting),
        "max_above_lowtime_percent_at_the_40": max_above(forty, lowtime, waiting, between=False),
    }


def max_above(planning: Planning, lowtime: list[tuple[float, float]], waiting: float, *, between: bool = True) -> float:
    """Maximum excess energy of our best plan over Lowtime's at the deadlines of our plans, in percent.

    A negative value means less energy at every deadline. With ``between``, the deadlines include the times of all
    plans of Lowtime; the faster of two of our plans meets a deadline between them.
    """
    own = [(plan.time_seconds, plan.effective_joules) for plan in planning.plans]
    worst = -np.inf
    for time_seconds, _ in own + lowtime if between else own:
        cheapest = [
            min((cost for time, cost in plans if time <= time_seconds * (1 + 1e-9)), default=np.inf)
            for plans in (own, lowtime)
        ]
        if np.isfinite(cheapest[1]):
            own_energy, lowtime_energy = (cost + waiting * time_seconds for cost in cheapest)
            worst = max(worst, own_energy / lowtime_energy - 1)
    return float(worst * 100)


def exponent(sizes: list[float], values: list[float]) -> float:
    """Exponent of a power law, the slope of the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def table(title: str, rows: list[dict[str, Any]], columns: list[str]) -> None:
    """Print the given columns of rows."""
    print(f"\n{title}")
    writer = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([f"{row[name]:.4g}" if isinstance(row[name], float) else row[name] for name in columns])


SHOWN = [
    "seconds",
    "cpu_seconds",
    "breakpoints",
    "plans",
    "fastest_above_min_seconds",
    "gap_mean_percent",
    "gap_max_percent",
    "peak_megabytes",
]


def measure_targets(repeat: int) -> list[dict[str, Any]]:
    """The cases with target times."""
    cases = [
        {"file": f, "stages": s, "microbatches": m, "power": POWER[f], "target_seconds": t} for f, s, m, t in TARGETS
    ]
    rows = [in_own_process({**case, "repeat": repeat}) for case in cases]
    table("Relaxation and 40 plans", rows, ["file", "stages", "microbatches", "operations", "target_seconds", *SHOWN])
    return rows


def measure_growth(repeat: int) -> dict[str, Any]:
    """Time and memory at eight sizes, without the repeated structure."""
    case = {"file": GPT3, "stages": 8, "power": POWER[GPT3], "steady": False, "repeat": repeat}
    rows = [in_own_process({**case, "microbatches": microbatches}) for microbatches in GROWTH]
    table("Growth, without the repeated structure", rows, ["operations", "seconds", "cpu_seconds", "peak_megabytes"])
    sizes = [float(row["operations"]) for row in rows]
    time_exponent = exponent(sizes, [row["cpu_seconds"] for row in rows])
    kilobytes = (rows[-1]["peak_megabytes"] - rows[0]["peak_megabytes"]) * 1024 / (sizes[-1] - sizes[0])
    print(f"CPU time grows like operations ^ {time_exponent:.2f}, memory by {kilobytes:.1f} kB per operation")
    return {"rows": rows, "cpu_time_exponent": time_exponent, "kilobytes_per_operation": kilobytes}


def measure_frequencies(repeat: int) -> dict[str, Any]:
    """110 frequencies compared with 20 of these, with measurement noise and on a smooth curve."""
    every = list(H200_CLOCKS)
    clocks = {110: every, 20: [every[place] for place in np.linspace(0, len(every) - 1, 20).round().astype(int)]}
    cases = [
        {
            "clocks": chosen,
            "noise": noise,
            "stages": 8,
            "microbatches": microbatches,
            "power": 75.0,
            "frequencies": count,
        }
        for noise in (0.003, 0.0)
        for microbatches in FREQUENCY_TARGETS
        for count, chosen in clocks.items()
    ]
    rows = [in_own_process({**case, "repeat": repeat, "walk": True}) for case in cases]
    columns = ["frequencies", "noise", "operations", *SHOWN, "breakpoints_per_cpu_second"]
    table("110 frequencies and 20 of these", rows, columns)
    ratios = [
        {
            "noise": many["noise"],
            "operations": many["operations"],
            "cpu_seconds_of_110": many["cpu_seconds"],
            "cpu_seconds_of_20": few["cpu_seconds"],
            "times_slower": many["cpu_seconds"] / few["cpu_seconds"],
            "times_the_breakpoints": many["breakpoints"] / few["breakpoints"],
            "target_seconds": FREQUENCY_TARGETS[many["microbatches"]],
        }
        for many, few in zip(rows[::2], rows[1::2], strict=True)
    ]
    table("Ratios of 110 frequencies to 20", ratios, list(ratios[0]))
    return {"rows": rows, "ratios": ratios}


def measure_lowtime(python: str | None) -> list[dict[str, Any]]:
    """Compare with Lowtime, if it is installed."""
    python = python or (sys.executable if importlib.util.find_spec("lowtime") else None)
    if python is None:
        print("\nLowtime: skipped, because it is not installed (pip install lowtime, or --lowtime-python)")
        return []
    rows = [against_lowtime(python, *case) for case in AGAINST_LOWTIME]
    table("Comparison with Lowtime", rows, list(rows[0]))
    return rows


PARTS = ("targets", "growth", "frequencies", "lowtime")


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--lowtime-python", metavar="PROGRAM", help="interpreter of an environment that has Lowtime")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--output", type=Path, help="also write the report to this JSON file")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        json.dump(one_case(json.loads(arguments.case)), sys.stdout)
        return
    report: dict[str, Any] = {}
    for part in arguments.parts:
        if part == "lowtime":
            report[part] = measure_lowtime(arguments.lowtime_python)
        else:
            measure = {"targets": measure_targets, "growth": measure_growth, "frequencies": measure_frequencies}[part]
            report[part] = measure(arguments.repeat)
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
