"""Caches the posterior, so that a decision with additional observations updates it incrementally.

The cache holds no state: the posterior is a function of the observations, and an incremental
update gives the same result as a computation from the start.
"""

from wattloop_planner.bandit.configuration import ConfigurationSpace
from wattloop_planner.bandit.feasible_arms import crashes_in_a_row, feasible_arms
from wattloop_planner.bandit.observation_order import in_order
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.bandit.posterior import Posterior
from wattloop_planner.bandit.priors import CHANGED_REGIME, OTHER_JOB
from wattloop_planner.observations import Observation, Outcome

Settings = tuple[ConfigurationSpace, float, int, bool | None]


class PosteriorCache:
    """Caches the posterior of the observations of the last call."""

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._observations: tuple[Observation, ...] = ()
        self._posterior: Posterior | None = None
        self._crashes: dict[int, int] = {}

    def posterior(self, context: DecisionContext, window: int = 0) -> Posterior:
        """The posterior of a context's observations.

        Args:
            context: The context of the decision.
            window: Number of most recent observations used; 0: all, with change detection.
        """
        maximize = None if context.target is None else context.target.maximize
        settings = (context.space, context.eta, window, maximize)
        observations = context.observations
        extends = self._posterior is not None and settings == self._settings and self._extends_cached(observations)
        if extends and window == 0 and self._posterior is not None:
            for observation in observations[len(self._observations) :]:
                arm = context.space.index(observation.batch_size, observation.parameters)
                if arm is not None and observation.outcome is Outcome.CRASHED:
                    self._crashes[arm] = self._crashes.get(arm, 0) + 1
                elif arm is not None:
                    self._crashes.pop(arm, None)
                self._posterior.update(observation)
        elif not (extends and len(observations) == len(self._observations)):
            self._settings = settings
            self._posterior = self._computed(observations, settings)
        self._observations = observations
        assert self._posterior is not None
        return self._posterior

    def feasible_arms(self, context: DecisionContext) -> tuple[int, ...]:
        """The arms that are not excluded and did not crash too often. Call `posterior` first.

        Raises:
            NoFeasibleArmError: No arm is left.
        """
        return feasible_arms(context.space, self._crashes, context.arms_excluded)

    def _extends_cached(self, observations: tuple[Observation, ...]) -> bool:
        """Whether the observations are the cached ones followed by later ones of this job, in order."""
        known = len(self._observations)
        if observations[:known] != self._observations:
            return False
        last = self._observations[-1] if self._observations else None
        for observation in observations[known:]:
            if observation.from_other_job or observation.easier_target:
                return False
            if last is not None and (observation.recurrence, observation.attempt) <= (last.recurrence, last.attempt):
                return False
            last = observation
        return not (self._observations and self._observations[-1].from_other_job)

    def _computed(self, observations: tuple[Observation, ...], settings: Settings) -> Posterior:
        space, eta, window, maximize = settings
        self._crashes = {}
        posterior = Posterior(space, eta, maximize, detects_changes=not window)
        ordered = in_order(observations)
        others = [o for o in ordered if o.from_other_job]
        own = [o for o in ordered if not o.from_other_job]
        for observation in others:
            posterior.update(observation)
        if others:
            posterior.start_regime(OTHER_JOB)
        self._crashes = crashes_in_a_row(space, own)
        # Those since the one that is `window`-th from the end of those that give epochs.
        of_epochs = [index for index, each in enumerate(own) if each.gives_epochs]
        latest = own[of_epochs[-window] :] if 0 < window <= len(of_epochs) else own
        easier = [o for o in latest if o.easier_target]
        for observation in easier:
            posterior.update(observation)
        if easier:
            posterior.start_regime(CHANGED_REGIME)
        for observation in latest:
            if not observation.easier_target:
                posterior.update(observation)
        return posterior
