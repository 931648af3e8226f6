"""No policy sees the future of an attempt: a replaced future changes no decision and no review."""

from dataclasses import replace
from pathlib import Path

import pytest

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.metric_curve import MetricCurve
from wattloop_research.simulation.job_trace import JobTrace, job_trace
from wattloop_research.simulation.overlapping_recurrences import simulate
from wattloop_research.simulation.simulator import Scenario
from wattloop_research.simulation.traces import TracedWorkload, TrainingPath, read_power_trace, read_train_trace

DATA = Path(__file__).parents[2] / "data" / "zeus-traces"
WORKLOAD, TARGET, RECURRENCES = TracedWorkload("cifar100", "shufflenetv2", "adadelta"), 0.55, 12


# Recurrence, attempt and epochs.
Moment = tuple[int, int, float]


class RecordedPolicy:
    """The default policy; records its inputs and answers with their moments, in order."""

    def __init__(self) -> None:
        self._policy = ThompsonSamplingPolicy()
        self._answers: list[tuple[Moment, object, object]] = []

    def decide(self, context: DecisionContext) -> Decision:
        decision = self._policy.decide(context)
        self._answers.append(((context.recurrence, context.attempt, 0.0), context, decision))
        return decision

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        stop = self._policy.review(context, decision, partial)
        self._answers.append(((context.recurrence, context.attempt, partial.epochs), partial, stop))
        return stop

    def answers(self, end: Moment) -> list[tuple[Moment, object, object]]:
        """Until an attempt has run for some epochs."""
        return [answer for answer in self._answers if answer[0] <= end]


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    train, power = read_train_trace(DATA / "summary_train.csv"), read_power_trace(DATA / "summary_power_a40.csv")
    trace = job_trace(train, power, workload=WORKLOAD, targets=(TARGET,), eta=0.5)
    return Scenario("cifar100", "a40", trace, TARGET, 100, 1024, RECURRENCES)


def poisoned(trace: JobTrace, size: Configuration, run: int, epochs: int) -> JobTrace:
    """The trace with a path that gets stuck after these epochs."""
    curve = trace.curves[TARGET][size][run]
    stuck = MetricCurve((*curve.before(epochs).epochs, 99.0), (*curve.before(epochs).metrics, 0.54))
    paths = tuple(
        TrainingPath(path.run, 99.0, path.line) if path.run == run else path for path in trace.paths[TARGET][size]
    )
    return replace(
        trace,
        paths={TARGET: {**trace.paths[TARGET], size: paths}},
        curves={TARGET: {**trace.curves[TARGET], size: {**trace.curves[TARGET][size], run: stuck}}},
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_decisions_and_reviews_depend_on_the_past_only(scenario: Scenario, seed: int) -> None:
    """The path of each attempt, which no earlier attempt drew, is poisoned beyond each of three epochs."""
    known = RecordedPolicy()
    attempts = list(simulate(scenario, known, seed))
    drawn: set[tuple[Configuration, int]] = set()
    checked = reviews = 0
    for attempt in attempts:
        key = (attempt.configuration, attempt.run)
        for epochs in (1, 4, 9) if key not in drawn else ():
            if epochs >= attempt.result.epochs:
                continue
            end, unknown = (attempt.recurrence, attempt.attempt, float(epochs)), RecordedPolicy()
            trace = poisoned(scenario.trace, attempt.configuration, attempt.run, epochs)
            for other in simulate(replace(scenario, trace=trace), unknown, seed):
                if (other.recurrence, other.attempt) >= end[:2]:
                    break
            answers = known.answers(end)
            assert unknown.answers(end) == answers
            checked += 1
            reviews += sum(isinstance(given, PartialObservation) for _, given, _ in answers)
        drawn.add(key)
    assert checked > 5
    assert reviews > 5
