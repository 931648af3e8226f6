"""What an attempt costs before its epochs: loading libraries and data, compiling, filling caches.

Every attempt pays it once, whatever its arm. So it distinguishes no arms, but a stopped attempt has paid it
in vain. Without it, the first epoch of an arm that is tried seems several times as expensive as the epochs of
an attempt that ran many, if epochs are short.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from wattloop.cost import CostModel
from wattloop_planner.bandit.policy import PartialObservation
from wattloop_planner.observations import Observation

# The latest attempts count, because the training may change.
COUNTED_ATTEMPTS = 10
# Epochs take at least this share of an attempt's cost: an estimate may exceed the cost of a short attempt.
MIN_EPOCHS_SHARE = 0.05


class StartUps:
    """The costs of starting an attempt on each GPU model.

    Args:
        eta: Weight of energy against time in the cost.
    """

    def __init__(self, eta: float) -> None:
        self._eta = eta
        self._costs: dict[str, deque[float]] = {}

    def add(self, observation: Observation) -> None:
        """Learn from an attempt whose start was measured."""
        measured = self._measured(observation)
        if measured is not None:
            self._costs.setdefault(observation.gpu_model, deque(maxlen=COUNTED_ATTEMPTS)).append(measured)

    def expected(self, gpu_model: str) -> float:
        """Expected cost of a start, in joules; 0 if none was measured on this GPU model."""
        costs = self._costs.get(gpu_model)
        return median(costs) if costs else 0.0

    def cost_of(self, attempt: Observation | PartialObservation, gpu_model: str) -> float:
        """Cost of the start of an attempt in joules: measured, or else expected, which is less than its cost.

        Args:
            attempt: An attempt that has ended, or is running.
            gpu_model: Product name of its GPUs.
        """
        measured = self._measured(attempt)
        if measured is not None:
            return measured
        paid = CostModel(self._eta, attempt.max_power_watts).cost_joules(attempt.energy_joules, attempt.time_seconds)
        return min(self.expected(gpu_model), (1 - MIN_EPOCHS_SHARE) * paid)

    def _measured(self, attempt: Observation | PartialObservation) -> float | None:
        if attempt.start_up is None:
            return None
        model = CostModel(self._eta, attempt.max_power_watts)
        return model.cost_joules(attempt.start_up.energy_joules, attempt.start_up.time_seconds)
