"""Synthetic jobs whose curves are of no use, or mislead: the simulator runs them as measured traces."""

import math
import random
from collections.abc import Callable

from wattloop.energy.cost import CostModel
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.metric_curve import MetricCurve
from wattloop_research.simulation.configurations import Curves
from wattloop_research.simulation.job_trace import ConfigurationTrace, JobTrace
from wattloop_research.simulation.simulated_attempt import Epoch
from wattloop_research.simulation.simulator import Scenario
from wattloop_research.simulation.traces import TracedWorkload, TrainingPath

SIZES = (8, 16, 32, 64, 128, 256, 512)
TARGET = 0.9
RUNS = 6
RECURRENCES = 25
Metric = Callable[[random.Random, int, int, float], float]


def honest(draw: random.Random, arm: int, epoch: int, share: float) -> float:
    """Rises with the share of the run, the same at every batch size."""
    return 0.89 * share**0.4


# The metric after an epoch, by (random numbers, arm, epoch, share of the run).
KINDS: dict[str, Metric] = {
    "constant": lambda draw, arm, epoch, share: 0.1,
    "noise": lambda draw, arm, epoch, share: draw.random() * 0.89,
    "falls": lambda draw, arm, epoch, share: 0.89 * (1 - share),
    "comes late": lambda draw, arm, epoch, share: 0.01 * epoch if share < 0.9 else 0.8,
    "another scale at every size": lambda draw, arm, epoch, share: honest(draw, arm, epoch, share) * 7.0 ** (arm - 6),
    "rises with epochs, not progress": lambda draw, arm, epoch, share: 0.89 * (1 - math.exp(-epoch / 20)),
    "slower where the run is shorter": lambda draw, arm, epoch, share: 0.89 * share ** (0.2 + 0.3 * arm),
    "very noisy": lambda draw, arm, epoch, share: honest(draw, arm, epoch, share) + draw.gauss(0, 0.2),
}


def synthetic_scenario(metric: Metric, seed: int, *, with_curves: bool) -> Scenario:
    """A job whose costs are U-shaped over the batch size, and whose metric does not predict its epochs.

    The target is reached after the epochs of the path, whatever the metric was before. The jobs of a seed differ in
    their curves alone.
    """
    draw, draw_curve = random.Random(seed), random.Random(seed)
    best, curvature, noise = draw.uniform(0, len(SIZES) - 1), draw.uniform(0.05, 0.4), draw.uniform(0.05, 0.3)
    level, speed, centre = draw.uniform(2, 3.5), draw.uniform(0.4, 0.8), (len(SIZES) - 1) / 2
    traces: list[ConfigurationTrace] = []
    paths: dict[Configuration, tuple[TrainingPath, ...]] = {}
    curves: Curves = {}
    for arm, size in enumerate(SIZES):
        epoch_cost = 100 * 2 ** (-speed * arm)
        epoch = Epoch(epoch_cost, 1.0, CostModel(1.0, 300.0).cost_joules(epoch_cost, 1.0))
        configuration = Configuration(size)
        traces.append(ConfigurationTrace(configuration, 200.0, epoch, epoch, 300.0, epoch))
        log_epochs = (
            level + curvature * ((arm - best) ** 2 - (centre - best) ** 2) / 2 + speed * math.log(2) * (arm - centre)
        )
        totals = [max(2, round(math.exp(min(log_epochs + draw.gauss(0, noise), 6.0)))) for _ in range(RUNS)]
        paths[configuration] = tuple(TrainingPath(run, float(total), 0) for run, total in enumerate(totals))
        curves[configuration] = {run: _curve(metric, draw_curve, arm, total) for run, total in enumerate(totals)}
    workload = TracedWorkload("synthetic", "none", "none")
    trace = JobTrace(workload, 1.0, 300.0, 1, (), tuple(traces), {TARGET: paths}, {TARGET: curves})
    default = draw.choice(SIZES)
    return Scenario("synthetic", "", trace, TARGET, 1000, default, RECURRENCES, with_curves=with_curves)


def _curve(metric: Metric, draw: random.Random, arm: int, total: int) -> MetricCurve:
    before = [(float(epoch), metric(draw, arm, epoch, epoch / total)) for epoch in range(1, total)]
    return MetricCurve(*map(tuple, zip(*before, (float(total), TARGET), strict=True)))
