"""What a later run of a configuration costs, from what its runs did cost: the one definition that all views show.

The whole cost of a run is what was measured best. It is divided into a start, which a cold cache makes several times as
expensive once, and the rest, only where the runs show that the division is no error (`start_up_model`). The log of the
rest is Gaussian between runs of one configuration. How much it varies is learned from all configurations that ran
several times (`noise_scale`).

Two intervals are central 90 % intervals: that of a later run, which every table shows, and that of the expected cost,
with which savings are compared.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from wattloop_planner.bandit.noise_scale import NoiseScale, noise_scale, pooled_spread
from wattloop_planner.bandit.observation_order import own_observations
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.bandit.priors import MIN_EPOCHS_SHARE
from wattloop_planner.bandit.start_up_model import ExpectedStartUps
from wattloop_planner.bandit.start_ups import StartUps
from wattloop_planner.estimate import Estimate, RunCost
from wattloop_planner.observations import WHOLE_RUNS, Observation, Outcome

# The latest runs of a configuration that count, because the data may grow.
LATEST_RUNS = 24
# The latest attempts of a configuration that are looked at: most are whole runs.
LATEST_ATTEMPTS = 2 * LATEST_RUNS
# Relative standard error of the cost of an epoch at the highest power limit, measured over seconds.
EPOCH_COST_ERROR = 0.02
# An explanation of the known starts that is less likely than this is outside of the interval.
MIN_PROBABILITY = 0.05


@dataclass(frozen=True)
class PaidAttempt:
    """An attempt of a job.

    Attributes:
        conditions: What its costs depend on besides, such as its power limit. Runs under other ones do not tell how
            much costs vary.
    """

    configuration: Hashable
    observation: Observation
    conditions: Hashable = None


@dataclass(frozen=True)
class _Start:
    """Expected start, how much it varies, the number of known ones, and what it costs more for a slow configuration."""

    joules: float
    noise: NoiseScale | None
    known: int
    more_if_slow: float


class RunCosts:
    """What the attempts of a job cost, divided into starts and epochs where that can be told.

    The first start on a node, or of a batch size, compiles and fills caches that later ones find. A job's default
    configuration often ran once, at first, so its next start is expected from those of all configurations.

    Args:
        attempts: Of one job and one target, in their order.
        eta: Weight of energy in the cost, 0 to 1.
    """

    def __init__(self, attempts: Iterable[PaidAttempt], eta: float) -> None:
        self._attempts = _latest(attempts)
        self._arms: dict[Hashable, int] = {}
        for each in self._attempts:
            self._arms.setdefault(each.configuration, len(self._arms))
        self._eta, self._starts = eta, StartUps(eta, len(self._arms))
        self._known_starts: dict[tuple[int, str], list[float]] = {}
        for each in self._attempts:
            self._learn_start(self._arms[each.configuration], each.observation)
        self._noise = self._noise_scale()

    @property
    def noise(self) -> NoiseScale:
        """How much the cost of the epochs of a run varies."""
        return self._noise

    def start_half_width(self, gpu_model: str) -> float:
        """Half of the central 90 % interval of the log cost of a start; 0 if no start costs anything."""
        noise = _start_noise(self._starts.expected(gpu_model))
        return 0.0 if noise is None else noise.half_width(1.0)

    def epochs_joules(self, attempt: PaidAttempt) -> float:
        """What an attempt cost without its start, if any start is known.

        The measurement of power limits is left out where the start and the epochs were measured apart from it.
        """
        run, arm = attempt.observation, self._arms[attempt.configuration]
        if run.start_up is None:
            return run.cost_joules(self._eta) - self._starts.cost_of(arm, run, run.gpu_model)
        return self._starts.epochs_joules(arm, run, run.gpu_model)

    def of(self, configuration: Hashable, gpu_model: str, epoch_joules: float | None = None) -> RunCost | None:
        """The cost of a later recurrence.

        Args:
            configuration: The configuration.
            gpu_model: Product name of the GPUs that it will run on. Without a run on them, those on others count.
            epoch_joules: Measured cost of one of its epochs as it will run; None: what its epochs did cost counts.

        Returns:
            None if no run of the configuration reached the target.
        """
        whole = [
            each
            for each in self._attempts
            if each.configuration == configuration and each.observation.outcome in WHOLE_RUNS
        ]
        counted = ([each for each in whole if each.observation.gpu_model == gpu_model] or whole)[-LATEST_RUNS:]
        if not any(each.observation.outcome is Outcome.REACHED for each in counted):
            return None
        joules = [
            self.epochs_joules(each) if epoch_joules is None else epoch_joules * each.observation.epochs
            for each in counted
        ]
        start = self._start(self._arms[configuration], gpu_model)
        reached = [each.observation.outcome is Outcome.REACHED for each in counted]
        found = _run_cost(reached, joules, start, self._noise, 0.0 if epoch_joules is None else EPOCH_COST_ERROR)
        first = counted[0].observation
        # Within its only epoch, nobody knows what the first run of all compiled; later ones show it by the spread.
        hides = len(counted) == 1 and first.start_up is None and first.epochs <= 1
        if epoch_joules is None and hides and not self._starts.knows(first.gpu_model):
            return RunCost(*(replace(each, low=MIN_EPOCHS_SHARE * each.low) for each in (found.of_run, found.expected)))
        return found

    def _learn_start(self, arm: int, run: Observation) -> None:
        start, epoch = self._starts.measured(run), self._starts.epoch(run)
        if start is not None:
            epochs = 0.0 if epoch is None else run.epochs
            self._starts.add(run.gpu_model, arm, start, epochs, epochs * (epoch or 0.0))
            self._known_starts.setdefault((arm, run.gpu_model), []).append(start)

    def _start(self, arm: int, gpu_model: str) -> _Start:
        """The next start. Where its own were more expensive than others, it may be slow, or they found no cache."""
        expected = self._starts.expected(gpu_model)
        typical, risk = float(expected.typical[arm]), float(expected.risk[arm])
        own = self._known_starts.get((arm, gpu_model), [])
        excess = fmean(own) - typical if own else 0.0
        is_possible = excess > 0 and risk / excess > MIN_PROBABILITY
        known = sum(len(starts) for (_, gpu), starts in self._known_starts.items() if gpu == gpu_model)
        more = max(excess - risk, 0.0) if is_possible else 0.0
        return _Start(typical + risk, _start_noise(expected), max(known, 1), more)

    def _noise_scale(self) -> NoiseScale:
        costs: dict[object, list[float]] = {}
        for each in self._attempts:
            joules = self.epochs_joules(each)
            if each.observation.outcome is Outcome.REACHED and joules > 0:
                key = each.configuration, each.conditions, each.observation.gpu_model
                costs.setdefault(key, []).append(joules)
        return noise_scale(pooled_spread(of_arm[-LATEST_RUNS:] for of_arm in costs.values()))


def _start_noise(expected: ExpectedStartUps) -> NoiseScale | None:
    """How much starts vary; None if they cost nothing, or if the whole cost of a run has their noise."""
    is_apart = expected.typical.any() and not expected.is_division_noise
    return noise_scale(expected.variation) if is_apart else None


def _latest(attempts: Iterable[PaidAttempt]) -> list[PaidAttempt]:
    counts: Counter[Hashable] = Counter()
    latest = []
    for each in reversed(tuple(attempts)):
        counts[each.configuration] += 1
        if counts[each.configuration] <= LATEST_ATTEMPTS:
            latest.append(each)
    return latest[::-1]


def attempts_of(context: DecisionContext) -> list[PaidAttempt]:
    """The attempts of a job towards its present target on the GPUs of the next one, by their arms."""
    own = (each for each in own_observations(context) if not each.other_target)
    return [PaidAttempt(arm, each) for each in own if (arm := context.arm_of(each)) is not None]


def _run_cost(
    reached: Sequence[bool], epochs_joules: Sequence[float], start: _Start, noise: NoiseScale, error: float
) -> RunCost:
    """The cost from whole runs: those that missed the target are paid as retries."""
    joules = [each + start.joules for each in epochs_joules]
    runs, reaching = len(reached), sum(reached)
    value = math.fsum(joules) / reaching
    share = math.fsum(epochs_joules) / math.fsum(joules) if value > 0 else 1.0
    # The attempts until one reaches the target are geometric: the variance of the log of their number, and of its mean.
    retries = 1 - reaching / runs
    of_mean = noise.half_width(share**2 / reaching, retries / reaching + error**2)
    of_run = noise.half_width(share**2 * (1 + 1 / reaching), retries * (1 + 1 / reaching) + error**2)
    if start.noise is not None:
        of_mean = math.hypot(of_mean, start.noise.half_width((1 - share) ** 2))
        of_run = math.hypot(of_run, start.noise.half_width((1 - share) ** 2 * (1 + 1 / start.known)))
    # The median of a run is below its mean, if costs vary by much.
    positive = [each for each in joules if each > 0]
    median = value * math.exp(fmean(map(math.log, positive))) / fmean(positive) if positive else value
    more = start.more_if_slow * runs / reaching
    return RunCost(
        Estimate(value, min(median * math.exp(-of_run), value), max(median * math.exp(of_run), value) + more),
        Estimate(value, value * math.exp(-of_mean), value * math.exp(of_mean) + more),
    )
