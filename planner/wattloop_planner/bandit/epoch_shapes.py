"""Shapes of the epochs to the target over the batch size, from the noise scale of the gradient.

The epochs of a batch size b are modelled as a·(1 + b/B_c)·(1 + B_s/b). Beyond the critical batch size B_c,
larger batches need as many steps and so more epochs (McCandlish, Kaplan and Amodei 2018, "An empirical model
of large-batch training"). Below B_s, the noise of small batches makes steps useless, and the epochs rise
again. Which of the two limits a job meets is unknown, so each pair on a grid is a hypothesis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattloop_planner.bandit.gaussian_process import Matrix, Vector


@dataclass(frozen=True)
class EpochShapes:
    """A grid of equally likely pairs of B_c and B_s, in whole octaves from the default batch size.

    Attributes:
        critical_octaves: Least and largest log2(B_c / default).
        small_octaves: Least and largest log2(B_s / default).
    """

    critical_octaves: tuple[int, int]
    small_octaves: tuple[int, int]

    def at(self, octaves: Vector) -> Matrix:
        """Log epochs for a = 1 under each hypothesis, shape (hypotheses, arms).

        Args:
            octaves: log2 of the batch size of each arm over the default, shape (arms,).

        Example:
            >>> EpochShapes((0, 1), (-9, -9)).at(np.array([0.0, 1.0])).round(2).tolist()
            [[0.7, 1.1], [0.41, 0.69]]
        """
        first, last = self.critical_octaves
        least, largest = self.small_octaves
        critical, small = np.meshgrid(np.arange(first, last + 1.0), np.arange(least, largest + 1.0))
        more_epochs = np.log1p(2.0 ** (octaves - critical.ravel()[:, None]))
        shapes: Matrix = more_epochs + np.log1p(2.0 ** (small.ravel()[:, None] - octaves))
        return shapes
