"""The evidence of a job's observations, grown where a question adds to the last one instead of folded anew.

This is a memory of computations, not of state: the evidence is a function of the observations alone, and the same
whether it grew or was folded from nothing.
"""

from __future__ import annotations

from wattloop_planner.bandit.arms_left import crashes_in_a_row, nearest_arm, no_arm_left_text
from wattloop_planner.bandit.evidence import Evidence
from wattloop_planner.bandit.history import in_order
from wattloop_planner.bandit.policy import NoArmLeftError, Question
from wattloop_planner.bandit.priors import OTHER_JOB, ChangeDetection, NoisePrior
from wattloop_planner.observations import Observation, Outcome

NO_DETECTION = ChangeDetection(threshold=float("inf"))
Settings = tuple[tuple[int, ...], int, float, int, NoisePrior, ChangeDetection]


class EvidenceMemory:
    """Remembers the evidence of the observations it was asked about last."""

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._seen: tuple[Observation, ...] = ()
        self._evidence: Evidence | None = None
        self._crashes: dict[int, int] = {}

    def evidence(self, question: Question, window: int, noise: NoisePrior, detection: ChangeDetection) -> Evidence:
        """The evidence of a question's observations.

        Args:
            question: The question.
            window: Observations that count, the last ones; 0: all, with changes detected.
            noise: Expected spread between runs.
            detection: When the past is forgotten, without a window.
        """
        default = question.batch_sizes.index(nearest_arm(question.batch_sizes, question.default_batch_size))
        settings = (question.batch_sizes, default, question.eta, window, noise, detection)
        observations = question.observations
        grown = self._evidence is not None and settings == self._settings and self._added(observations)
        if grown and window == 0 and self._evidence is not None:
            for observation in observations[len(self._seen) :]:
                self._take(self._evidence, observation)
        elif not (grown and len(observations) == len(self._seen)):
            self._settings = settings
            self._evidence = self._fold(observations, settings)
        self._seen = observations
        assert self._evidence is not None
        return self._evidence

    def arms_left(self, question: Question, crash_budget: int) -> tuple[int, ...]:
        """The arms that did not crash too often; `evidence` must have been asked for first.

        Raises:
            NoArmLeftError: None is left.
        """
        crashed = {size: n for size, n in self._crashes.items() if n >= crash_budget and size in question.batch_sizes}
        if not crashed:
            return question.batch_sizes
        left = tuple(size for size in question.batch_sizes if size not in crashed)
        if not left:
            raise NoArmLeftError(no_arm_left_text(crashed))
        return left

    def _added(self, observations: tuple[Observation, ...]) -> bool:
        """Whether these are those seen, and later ones of this job in order."""
        known = len(self._seen)
        if observations[:known] != self._seen:
            return False
        last = self._seen[-1] if self._seen else None
        for observation in observations[known:]:
            if observation.from_other_job:
                return False
            if last is not None and (observation.recurrence, observation.attempt) <= (last.recurrence, last.attempt):
                return False
            last = observation
        return not (self._seen and self._seen[-1].from_other_job)

    def _fold(self, observations: tuple[Observation, ...], settings: Settings) -> Evidence:
        batch_sizes, default, eta, window, noise, detection = settings
        self._crashes = {}
        evidence = Evidence(batch_sizes, default, eta, noise, NO_DETECTION if window else detection)
        ordered = in_order(observations)
        others = [o for o in ordered if o.from_other_job]
        own = [o for o in ordered if not o.from_other_job]
        for observation in others:
            evidence.fold(observation)
        if others:
            evidence.start_regime(OTHER_JOB)
        self._crashes = crashes_in_a_row(own)
        for observation in own[-window:]:
            evidence.fold(observation)
        return evidence

    def _take(self, evidence: Evidence, observation: Observation) -> None:
        if observation.outcome is Outcome.CRASHED:
            self._crashes[observation.batch_size] = self._crashes.get(observation.batch_size, 0) + 1
        else:
            self._crashes.pop(observation.batch_size, None)
        evidence.fold(observation)
