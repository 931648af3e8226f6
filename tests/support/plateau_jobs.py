"""Synthetic trainings with plateaus of their own: noise, learning-rate drops, and sizes that end apart.

What no other synthetic job has: a target that some batch sizes reach narrowly and others miss, whole runs that
missed it, and curves that are flat before they rise again.
"""

import math
import random
from dataclasses import dataclass

from wattloop.wire.environment import RunTarget
from wattloop_planner.metric_curve import MetricCurve

SIZES = 6


@dataclass(frozen=True)
class PlateauJob:
    """A job whose first run misses its target.

    Attributes:
        max_epochs: Epochs after which a run ends.
        whole_run: The curve of its first run, which missed the target.
        others: Curves of later runs, whole, at other sizes.
    """

    target: RunTarget
    max_epochs: int
    whole_run: MetricCurve
    others: tuple[MetricCurve, ...]


def plateau_job(seed: int) -> PlateauJob:
    """A random job: the threshold lies above the final metric of its first run by up to 15 % of the range."""
    draw = random.Random(seed)
    max_epochs = draw.randint(20, 150)
    drops = sorted(
        (draw.uniform(0.2, 0.9) * max_epochs, draw.uniform(0.05, 0.5)) for _ in range(draw.choice((0, 1, 2)))
    )
    apart, between_runs, noise = draw.uniform(0.002, 0.05), draw.uniform(0.001, 0.01), draw.uniform(0.0, 0.02)
    speed = math.exp(draw.uniform(math.log(1.5), math.log(max_epochs / 2)))
    power_law = draw.random() < 0.5
    curves = []
    for _ in range(SIZES):
        end = 1 - abs(draw.gauss(0, apart)) + draw.gauss(0, between_runs)
        own_speed = speed * math.exp(draw.gauss(0, 0.3))
        curves.append(_curve(draw, end, own_speed, noise, drops, max_epochs, power_law=power_law))
    threshold = max(curves[0].metrics) + draw.uniform(0.0, 0.15) * (max(curves[0].metrics) - curves[0].metrics[0])
    return PlateauJob(RunTarget("metric", threshold), max_epochs, curves[0], tuple(curves[1:]))


def _curve(
    draw: random.Random,
    end: float,
    speed: float,
    noise: float,
    drops: list[tuple[float, float]],
    max_epochs: int,
    *,
    power_law: bool,
) -> MetricCurve:
    """A metric that rises to a part of its end; each drop of the learning rate releases a further part."""
    held_back = sum(part for _, part in drops) / 2
    points = []
    for epoch in range(1, max_epochs + 1):
        rise = _rise(epoch, speed, power_law=power_law) * (1 - held_back)
        for at, part in drops:
            rise += part / 2 * _rise(max(epoch - at, 0.0), speed / 3, power_law=power_law)
        points.append((epoch, end * rise + draw.gauss(0, noise)))
    curve = MetricCurve.from_points(points)
    assert curve is not None
    return curve


def _rise(epochs: float, speed: float, *, power_law: bool) -> float:
    return 1 - 1 / (1 + epochs / speed) if power_law else 1 - math.exp(-epochs / speed)
