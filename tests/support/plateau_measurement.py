"""How many attempts end at a plateau, and how many of those would have reached their target.

The first run of a job is whole and misses its target. Later runs are ended where `predict_final_metric` finds their
plateau, until one has reached the target. What an ended run would have got to is known from its whole curve.
"""

import csv
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scipy.stats import beta

from support.plateau_jobs import PlateauJob, plateau_job
from support.synthetic_jobs import KINDS, TARGET, synthetic_scenario
from wattloop.wire.environment import RunTarget
from wattloop_planner.final_metric import MIN_EVALUATIONS, predict_final_metric
from wattloop_planner.metric_curve import MetricCurve

CURVES = Path(__file__).parents[1] / "data" / "curves"
# Measured curves: file and whether a higher metric is better.
MEASURED = {"cifar10": True, "deepspeech2": False, "ncf": True}
CONFIDENCE = 0.95


@dataclass
class Tally:
    """Counts over the later runs of some jobs.

    Attributes:
        missing: Those that miss the target.
        ended: Those that were ended at their plateau.
        wrong: Those of them that would have reached the target.
        shares: Share of the epochs that each ended run had run.
        covered: Predictions at half of the epochs whose interval has the final metric.
        predictions: Predictions at half of the epochs.
    """

    runs: int = 0
    missing: int = 0
    ended: int = 0
    wrong: int = 0
    shares: list[float] = field(default_factory=list)
    covered: int = 0
    predictions: int = 0

    @property
    def upper_bound(self) -> float:
        """Upper 95 % confidence bound of the share of wrong ends (Clopper and Pearson), as if runs were independent."""
        if self.wrong == self.ended:
            return 1.0
        return float(beta.ppf(CONFIDENCE, self.wrong + 1, self.ended - self.wrong))

    def add(self, job: PlateauJob) -> None:
        """Run the later runs of a job until one reaches."""
        for curve in job.others:
            self.runs += 1
            reached = curve.first_reached(job.target)
            self.missing += reached is None
            end = self._end(job, curve, reached)
            if end is not None:
                self.ended += 1
                self.wrong += reached is not None
                self.shares.append(end / job.max_epochs)
            elif reached is not None:
                break

    def _end(self, job: PlateauJob, curve: MetricCurve, reached: float | None) -> float | None:
        """The epoch after which a run is ended at its plateau; None if it is not."""
        best = (max if job.target.maximize else min)(curve.metrics)
        for epoch in curve.epochs:
            if epoch >= job.max_epochs or (reached is not None and epoch >= reached):
                return None
            found = predict_final_metric(curve.before(epoch), epoch, job.target, job.max_epochs, [job.whole_run])
            if found is None:
                continue
            if epoch == job.max_epochs // 2 and reached is None:
                self.predictions += 1
                self.covered += found.low <= best <= found.high
            if found.is_plateau:
                return epoch
        return None


def measured_jobs(name: str, thresholds: int = 52, orders: int = 5) -> Iterator[PlateauJob]:
    """Jobs with the measured curves of one training: thresholds from below the worst final metric on.

    Half of the thresholds lie where some batch sizes reach them and others miss them; the others up to 20 % of the
    range beyond the best one.
    """
    maximize = MEASURED[name]
    curves = _measured_curves(name)
    sign, draw = (1.0 if maximize else -1.0), random.Random(0)
    finals = [max(sign * each for each in curve.metrics) for curve in curves]
    worst, best = min(finals), max(finals)
    span = best - min(sign * curve.metrics[0] for curve in curves)
    near = [worst + (best - worst) * i / (thresholds - 12) for i in range(-10, thresholds - 10)]
    far = [best + 0.2 * span * (i + 1) / thresholds for i in range(thresholds)]
    max_epochs = round(max(curve.epochs[-1] for curve in curves))
    for threshold in near + far:
        target = RunTarget("metric", sign * threshold, maximize=maximize)
        for _ in range(orders):
            first, *others = draw.sample(curves, len(curves))
            if first.first_reached(target) is None:
                yield PlateauJob(target, max_epochs, first, tuple(others))


def misleading_jobs(kind: str, seeds: int) -> Iterator[PlateauJob]:
    """Jobs whose curves are of no use, or mislead, with limits of epochs that some runs reach."""
    target = RunTarget("metric", TARGET)
    for seed in range(seeds):
        scenario, draw = synthetic_scenario(KINDS[kind], seed, with_curves=True), random.Random(seed)
        curves = [curve for of_arm in scenario.trace.curves[TARGET].values() for curve in of_arm.values()]
        lengths = sorted(curve.epochs[-1] for curve in curves)
        for part in (0.1, 0.25, 0.5, 0.75, 0.9):
            max_epochs = int(lengths[int(part * len(lengths))])
            first, *others = (curve.before(max_epochs) for curve in draw.sample(curves, 12))
            if max_epochs > MIN_EVALUATIONS and first.first_reached(target) is None:
                yield PlateauJob(target, max_epochs, first, tuple(others))


def plateau_jobs(seeds: Sequence[int]) -> Iterator[PlateauJob]:
    """Synthetic jobs with plateaus."""
    return map(plateau_job, seeds)


def tally_of(jobs: Iterator[PlateauJob]) -> Tally:
    """The counts over these jobs."""
    tally = Tally()
    for job in jobs:
        tally.add(job)
    return tally


def _measured_curves(name: str) -> list[MetricCurve]:
    points: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    with (CURVES / f"{name}.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            points[int(row["batch_size"])].append((float(row["epoch"]), float(row["metric"])))
    curves = [MetricCurve.from_points(found) for found in points.values()]
    return [each for each in curves if each is not None]
