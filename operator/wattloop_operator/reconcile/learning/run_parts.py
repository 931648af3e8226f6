"""What the attempts of a job cost, divided into starts and epochs, to expect the cost of its default configuration.

The first start on a node, or of a batch size, compiles and fills caches that later ones find. A job's default
configuration often ran once, at first, so its next start is expected from the starts of all configurations
(`wattloop_planner.bandit.start_up_model`), and not from its own alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.learning import job_observations
from wattloop_planner.bandit.default_cost import Spread, pooled_spread
from wattloop_planner.bandit.start_ups import StartUps
from wattloop_planner.estimate import Estimate
from wattloop_planner.observations import Observation, ParameterValues

# Normal quantile of the ends of the central 90 % interval.
QUANTILE = 1.645
# An explanation of the known starts that is less likely than this is outside of the interval.
MIN_PROBABILITY = 0.05
# Index of the default configuration among the arms of the start-ups.
DEFAULT_ARM = 0


class RunParts:
    """The starts and the epochs of a job's attempts.

    Args:
        records: Of one job and one target, ordered by (recurrence, attempt).
        eta: Weight of energy in the cost, 0 to 1.
        is_default: Whether a record is of the default configuration.
    """

    def __init__(
        self, records: Sequence[ObservationRecord], eta: float, is_default: Callable[[ObservationRecord], bool]
    ) -> None:
        self._eta = eta
        self._known = [
            (record, observation) for record in records for observation in job_observations.observations((record,))
        ]
        others: dict[tuple[int, ParameterValues], int] = {}
        self._arms = []
        for record, each in self._known:
            other = each.batch_size, each.parameters
            self._arms.append(DEFAULT_ARM if is_default(record) else others.setdefault(other, len(others) + 1))
        self._starts = StartUps(eta, arms=len(others) + 1)
        self._of_default: list[tuple[str, float]] = []
        for arm, (_, each) in zip(self._arms, self._known, strict=True):
            measured = self._starts.measured(each)
            if measured is not None:
                self._starts.add(each.gpu_model, arm, measured)
                if arm == DEFAULT_ARM:
                    self._of_default.append((each.gpu_model, measured))

    def default_runs(self) -> list[tuple[ObservationRecord, Observation]]:
        """The attempts of the default configuration that say something."""
        return [known for arm, known in zip(self._arms, self._known, strict=True) if arm == DEFAULT_ARM]

    def epochs_joules(self, run: Observation) -> float:
        """What an attempt of the default configuration cost without its start, if any start is known."""
        return run.cost_joules(self._eta) - self._starts.cost_of(DEFAULT_ARM, run, run.gpu_model)

    def expected_start(self, gpu_model: str) -> Estimate:
        """What the next start of the default configuration costs; 0 if none is known on this GPU model.

        Where its own starts were more expensive than others, it may be slow itself, or they found nothing cached.
        """
        expected = self._starts.expected(gpu_model)
        typical, risk = float(expected.typical[DEFAULT_ARM]), float(expected.risk[DEFAULT_ARM])
        own = [joules for gpu, joules in self._of_default if gpu == gpu_model]
        slow = fmean(own) if own else typical
        is_possible = slow > typical and risk / (slow - typical) > MIN_PROBABILITY
        deviation = QUANTILE * expected.spread
        high = (slow if is_possible else typical) + deviation
        return Estimate(typical + risk, max(typical - deviation, 0.0), max(high, typical + risk))

    def epoch_cost_spread(self) -> Spread:
        """The spread of the cost of an epoch between attempts of one configuration at one power limit."""
        costs: dict[tuple[int, float | None], list[float]] = {}
        for arm, (record, each) in zip(self._arms, self._known, strict=True):
            cost = (each.cost_joules(self._eta) - self._starts.cost_of(arm, each, each.gpu_model)) / max(each.epochs, 1)
            if each.epochs >= 1 and cost > 0:
                costs.setdefault((arm, record.power_limit_watts), []).append(cost)
        return pooled_spread(costs.values())
