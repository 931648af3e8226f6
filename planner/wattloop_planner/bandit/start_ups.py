"""What an attempt costs before its epochs: loading libraries and data, compiling, filling caches.

Every attempt pays it once. A stopped attempt has paid it in vain. Without it, the first epoch of an arm that
is tried seems several times as expensive as the epochs of an attempt that ran many, if epochs are short.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

from wattloop.energy.cost import CostModel
from wattloop_planner.bandit.policy import PartialObservation
from wattloop_planner.bandit.priors import MIN_EPOCHS_SHARE
from wattloop_planner.bandit.start_up_model import ExpectedStartUps, KnownStart, expected_start_ups
from wattloop_planner.observations import Observation

# The latest attempts count, because the training may change, and the latest ones of each arm, because an arm that
# starts slowly is not run often.
COUNTED_ATTEMPTS = 24
COUNTED_OF_ARM = 2
# An epoch whose cost differs from the expected one by more than this many standard deviations is no such epoch: the
# start of the attempt was another one than usual.
SURPRISING_DEVIATIONS = 2.0
# Standard deviation of the log of an epoch cost that is a part of an attempt's cost.
ROUGH_SD = 0.15
# Precision of the log of a measured epoch cost: known within 0.1 %.
EXACT_PRECISION = 1e6
# An epoch cost whose log has at most this standard deviation is known.
KNOWN_SD = 0.01
# Kept, because each attempt is divided at each review.
cost_model = lru_cache(maxsize=64)(CostModel)


@dataclass(frozen=True)
class EpochForecast:
    """What an epoch of an arm is expected to cost, from other attempts.

    Attributes:
        log_cost: Mean of the log cost in joules.
        sd: Standard deviation of the log cost; almost 0 if the arm's epochs were measured.
    """

    log_cost: float
    sd: float


@dataclass(frozen=True)
class AttemptParts:
    """The cost of an attempt, divided into its start and its epochs.

    Attributes:
        epoch_precision: Precision of the log of the epoch's cost, by this attempt alone.
        shows_start_up: Whether the attempt says what its start cost.
        is_surprising: Whether its first epochs cost something else than expected, but it is not certain whether its
            start or its epochs are the cause.
    """

    start_up_joules: float
    epoch_joules: float
    epoch_precision: float
    shows_start_up: bool
    is_surprising: bool = False


class StartUps:
    """The costs of starting an attempt of each arm on each GPU model.

    `start_up_model` has the model.

    Args:
        eta: Weight of energy against time in the cost.
        arms: Number of arms.
    """

    def __init__(self, eta: float, arms: int) -> None:
        self._eta, self._arms = eta, arms
        self._known: dict[str, list[KnownStart]] = {}
        self._expected: dict[str, ExpectedStartUps] = {}

    def add(
        self, gpu_model: str, arm: int, cost_joules: float, epochs: float = 0.0, epochs_joules: float = 0.0
    ) -> None:
        """Learn what the start of an attempt cost, and its epochs if the cost of an epoch was measured."""
        known = self._known.setdefault(gpu_model, [])
        known.append(KnownStart(known[-1].index + 1 if known else 0, arm, cost_joules, epochs, epochs_joules))
        of_arm = [each for each in known if each.arm == arm]
        for each in of_arm[:-COUNTED_OF_ARM]:
            if each.index <= known[-1].index - COUNTED_ATTEMPTS:
                known.remove(each)
        self._expected.pop(gpu_model, None)

    def expected(self, gpu_model: str) -> ExpectedStartUps:
        """What a start is expected to cost; 0 if none is known on this GPU model."""
        if gpu_model not in self._expected:
            self._expected[gpu_model] = expected_start_ups(self._known.get(gpu_model, ()), self._arms)
        return self._expected[gpu_model]

    def knows(self, gpu_model: str) -> bool:
        """Whether an attempt on this GPU model has shown what its start cost."""
        return bool(self._known.get(gpu_model))

    def measured(self, attempt: Observation | PartialObservation) -> float | None:
        """Cost of an attempt's start, if it was measured."""
        if attempt.start_up is None:
            return None
        model = cost_model(self._eta, attempt.max_power_watts)
        return model.cost_joules(attempt.start_up.energy_joules, attempt.start_up.time_seconds)

    def cost_of(self, arm: int, attempt: Observation | PartialObservation, gpu_model: str) -> float:
        """Cost of the start of an attempt in joules: measured, or else expected, which is less than its cost.

        Where the division of attempts is noise, the expected one counts for all.

        Args:
            arm: Its arm.
            attempt: An attempt that has ended, or is running.
            gpu_model: Product name of its GPUs.
        """
        measured, expected = self.measured(attempt), self.expected(gpu_model)
        if measured is not None and not expected.is_division_noise:
            return measured
        typical = float(expected.typical[arm])
        return min(typical, (1 - MIN_EPOCHS_SHARE) * self._paid(attempt)) if typical > 0 else typical

    def epochs_joules(self, arm: int, attempt: Observation | PartialObservation, gpu_model: str) -> float:
        """Cost of an attempt's epochs: its own less that of its start, or else by the measured cost of an epoch.

        The measured cost of an epoch is that at the limit that was chosen, and the attempt may have run others.
        """
        epoch, measured = self.epoch(attempt), self.measured(attempt)
        if epoch is None:
            return self._paid(attempt) - self.cost_of(arm, attempt, gpu_model)
        joules = attempt.epochs * epoch
        return joules if measured is None else joules + measured - self.cost_of(arm, attempt, gpu_model)

    def epoch(self, attempt: Observation | PartialObservation) -> float | None:
        """Cost of one of an attempt's epochs, if it was measured."""
        if attempt.epoch_energy_joules is None or attempt.epoch_time_seconds is None:
            return None
        model = cost_model(self._eta, attempt.max_power_watts)
        return model.cost_joules(attempt.epoch_energy_joules, attempt.epoch_time_seconds)

    def parts(
        self, arm: int, attempt: Observation | PartialObservation, gpu_model: str, forecast: EpochForecast | None
    ) -> AttemptParts:
        """Divide the cost of an attempt into its start and its epochs.

        What was measured of the attempt counts. Otherwise, an epoch as expensive as expected leaves the expected
        start. The more the cost of an epoch is known, the more a deviation belongs to the start.

        Args:
            arm: Its arm.
            attempt: An attempt that ran at least a part of an epoch, or a running one.
            gpu_model: Product name of its GPUs.
            forecast: What an epoch of its arm is expected to cost; None if nothing is known.
        """
        measured, epoch = self.measured(attempt), self.epoch(attempt)
        shows = measured is not None
        if epoch is not None or shows:
            if attempt.epochs:
                epoch = self.epochs_joules(arm, attempt, gpu_model) / attempt.epochs
            assert epoch is not None, "an attempt without an epoch shows none"
            precision = EXACT_PRECISION if self.epoch(attempt) is not None else ROUGH_SD**-2
            return AttemptParts(self.cost_of(arm, attempt, gpu_model), epoch, precision, shows)
        paid = self._paid(attempt)
        if forecast is None or not self._known.get(gpu_model):
            # Before any attempt has shown its start, the mean of the epochs is all that is known.
            return AttemptParts(0.0, paid / attempt.epochs, ROUGH_SD**-2, shows_start_up=False)
        expected = self.expected(gpu_model)
        return _divided(paid, attempt.epochs, forecast, float(expected.typical[arm]), expected.spread)

    def _paid(self, attempt: Observation | PartialObservation) -> float:
        model = cost_model(self._eta, attempt.max_power_watts)
        return model.cost_joules(attempt.energy_joules, attempt.time_seconds)


def _divided(paid: float, epochs: float, forecast: EpochForecast, expected: float, spread: float) -> AttemptParts:
    typical = math.exp(forecast.log_cost)
    factor = math.exp(SURPRISING_DEVIATIONS * forecast.sd)
    left = (paid - expected) / epochs
    if typical / factor <= left <= typical * factor:
        sd = math.hypot(ROUGH_SD, spread / epochs / left)
        return AttemptParts(expected, left, sd**-2, shows_start_up=False)
    if paid < epochs * typical:
        # Cheaper than expected, even without any start.
        return AttemptParts(0.0, paid / epochs, ROUGH_SD**-2, shows_start_up=True)
    start_up = paid - epochs * typical
    if forecast.sd <= KNOWN_SD:
        return AttemptParts(start_up, typical, ROUGH_SD**-2, shows_start_up=True)
    # Most likely another start than expected. But the epochs may be the cause.
    likely = max(left, typical / factor)
    sd = max(abs(math.log(likely / typical)), ROUGH_SD)
    return AttemptParts(start_up, likely, sd**-2, shows_start_up=True, is_surprising=True)
