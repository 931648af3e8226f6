"""What is kept between decisions changes none of them: policies with their models, and what follows from a record."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.backends.curved_runs import CANDIDATES, EPOCH_JOULES, EPOCH_SECONDS, TARGET, curved_records
from support.backends.model_backend import KEY, ModelBackend, job
from support.backends.sample_reports import report
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.recurring_training_job_status import LearnSince
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import OTHER_CELLS, PolicyCache, Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.decision import Attempt, decide, decision_context, policy_decision
from wattloop_planner.bandit.named_policies import FixedPolicy
from wattloop_planner.bandit.policy import NoFeasibleArmError, Policy
from wattloop_planner.metric_curve import MetricCurve

INDEX = 500
(RUN, *_) = curved_records("job-uid", KEY.namespace, KEY.name)
SPEC: dict[str, Any] = {
    "objective": {"target": TARGET, "maxEpochs": 50},
    "batchSize": {"default": 64, "candidates": list(CANDIDATES)},
}
RUNS = st.tuples(
    st.just("run"),
    st.sampled_from(CANDIDATES),
    st.sampled_from([Result.REACHED, Result.REACHED, Result.EXHAUSTED, Result.STOPPED, Result.CRASHED]),
    st.integers(2, 30),
    st.sampled_from([0.8, 0.9]),
    st.sampled_from([None, "other"]),
)
FIRST_RUNS = [("run", size, Result.REACHED, epochs, 0.9, None) for size, epochs in ((64, 20), (32, 24), (64, 21))]
CHANGES = st.one_of(
    st.tuples(st.just("remove"), st.integers(0, 20)),
    st.tuples(st.just("correct"), st.integers(0, 20), st.integers(2, 30)),
    st.tuples(st.just("forget"), st.integers(0, 20)),
    st.tuples(st.just("target"), st.sampled_from(["0.8", "0.9"])),
    st.tuples(st.just("candidates"), st.sampled_from([(32, 64), CANDIDATES, (64, 128, 256)])),
    st.tuples(st.just("policy"), st.sampled_from(["ThompsonSampling", "Zeus"])),
)


def record_of(
    index: int, batch_size: int, result: Result, epochs: int, threshold: float, template: str | None
) -> ObservationRecord:
    points = tuple(float(epoch) for epoch in range(1, epochs + 1))
    metrics = tuple(round(threshold * math.sqrt(epoch / epochs), 6) for epoch in points)
    return replace(
        RUN,
        recurrence=index,
        recurrence_name=f"digits-{index}",
        batch_size=batch_size,
        result=result.value,
        epochs=float(epochs),
        energy_joules=EPOCH_JOULES * epochs,
        time_seconds=EPOCH_SECONDS * epochs,
        target_threshold=threshold,
        template_digest=template,
        curve=MetricCurve(points, metrics),
    )


@dataclass
class Changing:
    """A job whose records and spec change."""

    backend: ModelBackend
    spec: dict[str, Any]
    runs: int = 0

    def apply(self, change: tuple[Any, ...]) -> None:
        kind, *values = change
        records, keys = self.backend.records, sorted(self.backend.records)
        match kind:
            case "run":
                records[self.runs, 0] = record_of(self.runs, *values)
                self.runs += 1
            case "remove" if keys:
                del records[keys[values[0] % len(keys)]]
            case "correct" if keys:
                key = keys[values[0] % len(keys)]
                records[key] = replace(records[key], epochs=float(values[1]))
            case "forget":
                since = LearnSince(text="t", recurrence=values[0])
                status = self.backend.job.status.model_copy(update={"learn_since": since})
                self.backend.job = self.backend.job.model_copy(update={"status": status})
            case "target":
                self._respec("objective", {"target": {**TARGET, "threshold": values[0]}, "maxEpochs": 50})
            case "candidates":
                self._respec("batchSize", {**self.spec["batchSize"], "candidates": list(values[0])})
            case "policy":
                self._respec("batchSize", {**self.spec["batchSize"], "policy": values[0]})

    def _respec(self, name: str, value: object) -> None:
        self.spec = {**self.spec, name: value}
        self.backend.job = self.backend.job.model_copy(update={"spec": job(**self.spec).spec})

    def snapshot(self) -> Snapshot:
        return self.backend.snapshot(KEY)


def without_kept(snapshot: Snapshot) -> Snapshot:
    """The same state, read by an operator that has just started."""
    return replace(snapshot, policies=PolicyCache(), records=tuple(replace(each) for each in snapshot.records))


def decided(snapshot: Snapshot) -> object:
    """Everything that the policy decides and estimates, or the error."""
    try:
        attempt = decide(snapshot, Attempt(INDEX, 0, "next", snapshot.job.metadata.creation_timestamp))  # type: ignore[arg-type]
        return attempt, policy_decision(snapshot, decision_context(snapshot, INDEX, 0))
    except NoFeasibleArmError as error:
        return str(error)


def trial_of(snapshot: Snapshot) -> TrainingAttempt:
    """A running trial, decided before anything was known."""
    empty = replace(snapshot, records=(), policies=PolicyCache())
    found = decide(empty, Attempt(INDEX, 0, "next", snapshot.job.metadata.creation_timestamp))  # type: ignore[arg-type]
    decision = found.spec.decision.model_copy(update={"kind": DecisionKind.TRIAL})
    return found.model_copy(update={"spec": found.spec.model_copy(update={"batch_size": 128, "decision": decision})})


def reviewed(snapshot: Snapshot, trial: TrainingAttempt) -> Decimal | None:
    """The cost limit that a review sets."""
    progress = progress_after(trial, report(epoch=1, metric=0.1, joules=2000.0, seconds=10.0))
    return review_cost_limit(lambda: snapshot, trial, progress).stop_cost_joules


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(changes=st.lists(st.one_of(RUNS, CHANGES), min_size=1, max_size=16))
def test_decisions_and_reviews_are_those_of_an_operator_that_has_just_started(changes: list[tuple[Any, ...]]) -> None:
    of_job = Changing(ModelBackend(job(**SPEC)), SPEC)
    trial = trial_of(of_job.snapshot())
    for change in (*FIRST_RUNS, *changes):
        of_job.apply(change)
        snapshot = of_job.snapshot()
        assert decided(snapshot) == decided(without_kept(snapshot))
        assert reviewed(snapshot, trial) == reviewed(without_kept(snapshot), trial)


def test_a_changed_policy_counts_at_once() -> None:
    of_job = Changing(ModelBackend(job(**SPEC)), SPEC)
    for change in (*FIRST_RUNS, ("run", 32, Result.CRASHED, 2, 0.9, None)):
        of_job.apply(change)
    before = decided(of_job.snapshot())
    of_job.apply(("policy", "Zeus"))
    after = decided(of_job.snapshot())
    assert after == decided(without_kept(of_job.snapshot()))
    assert after != before


def test_concurrent_decisions_and_reviews_of_a_job_are_right() -> None:
    of_job = Changing(ModelBackend(job(**SPEC)), SPEC)
    trial, snapshots = trial_of(of_job.snapshot()), []
    for index in range(24):
        of_job.apply(("run", CANDIDATES[index % 2], Result.REACHED, 18 + index % 4, 0.9, None))
        snapshots.append(of_job.snapshot())
    expected = [(decided(each), reviewed(each, trial)) for each in map(without_kept, snapshots)]
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda each: (decided(each), reviewed(each, trial)), snapshots * 3)
        assert list(found) == expected * 3


ARMS = 10


def taken(cache: PolicyCache, key: str, arms: int = ARMS) -> Policy:
    with cache.policy(key, FixedPolicy, arms) as policy:
        return policy


def test_a_policy_is_kept_by_its_key() -> None:
    cache = PolicyCache()
    first = taken(cache, "one")
    assert taken(cache, "one") is first
    assert taken(cache, "other") is not first


def test_a_policy_in_use_is_given_to_nobody_else() -> None:
    cache = PolicyCache()
    with cache.policy("one", FixedPolicy, ARMS) as first, cache.policy("one", FixedPolicy, ARMS) as second:
        assert first is not second


def test_a_policy_that_failed_is_dropped() -> None:
    cache = PolicyCache()
    with pytest.raises(NoFeasibleArmError), cache.policy("one", FixedPolicy, ARMS) as failed:
        raise NoFeasibleArmError("no arm")
    assert taken(cache, "one") is not failed


def test_the_policy_used_least_recently_makes_room() -> None:
    cache = PolicyCache(2 * (ARMS**2 + OTHER_CELLS))
    first, second = taken(cache, "first"), taken(cache, "second")
    assert taken(cache, "first") is first
    taken(cache, "third")
    assert taken(cache, "first") is first
    assert taken(cache, "second") is not second


def test_a_policy_larger_than_the_cache_is_not_kept() -> None:
    cache = PolicyCache(ARMS**2)
    assert taken(cache, "one") is not taken(cache, "one")
