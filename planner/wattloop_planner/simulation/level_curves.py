"""The curve of a measured training path: the epochs after which it first reached each lower target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.simulation.traces import TrainingPath

Curves = dict[Configuration, dict[int, MetricCurve]]


def level_curves(by_target: Mapping[float, Mapping[Configuration, tuple[TrainingPath, ...]]], target: float) -> Curves:
    """The curves of all training paths of a workload by configuration and run, with levels up to a target.

    The traces have targets of a metric to maximise. A path whose number is not unique has no curve.

    Args:
        by_target: Training paths by target and configuration.
        target: The target; levels above it are unknown to a training that ends there.
    """
    points: dict[Configuration, dict[int, dict[float, float]]] = {}
    ambiguous: set[tuple[Configuration, int]] = set()
    for level in sorted(level for level in by_target if level <= target):
        for arm, paths in by_target[level].items():
            ambiguous.update((arm, run) for run, count in Counter(path.run for path in paths).items() if count > 1)
            for path in paths:
                if path.target_epoch is not None:
                    # Levels rise, so that the highest level reached after the same epoch remains.
                    points.setdefault(arm, {}).setdefault(path.run, {})[path.target_epoch] = level
    return {
        arm: {
            run: curve
            for run, found in of_arm.items()
            if (arm, run) not in ambiguous and (curve := MetricCurve.from_points(found.items())) is not None
        }
        for arm, of_arm in points.items()
    }
