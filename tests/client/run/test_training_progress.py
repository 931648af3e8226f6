"""The progress of a training: epochs, samples and evaluations, for any order of events."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.run.training_progress import TrainingProgress
from wattloop.wire.environment import RunTarget
from wattloop.wire.training_messages import MAX_NUMBER

LOSS = RunTarget("loss", 0.1, maximize=False, consecutive_evaluations=2)
VALUES = st.one_of(st.floats(0.0, 0.2), st.just(math.nan), st.just(math.inf))


@given(st.lists(VALUES, max_size=12))
def test_the_target_is_reached_by_as_many_consecutive_values_as_it_asks_for_and_stays_reached(
    values: list[float],
) -> None:
    progress = TrainingProgress(LOSS)
    for value in values:
        progress.evaluate(value)
    reaches = [value <= 0.1 for value in values]
    assert progress.reached == any(first and second for first, second in itertools.pairwise(reaches))
    assert progress.evaluations == len(values)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.floats(0.0, 100.0))
def test_samples_of_an_incomplete_epoch_do_not_count_whether_epochs_are_reported_or_not(
    reported: list[bool], rest: float
) -> None:
    progress = TrainingProgress(None)
    for is_reported in reported:
        progress.step(640.0)
        if is_reported:
            progress.evaluate(0.5)
        assert progress.complete_epoch() is not is_reported
    progress.step(rest)
    assert (progress.epochs, progress.samples_per_epoch) == (len(reported), 640.0)


def test_an_evaluation_after_the_loop_counts_as_no_further_epoch() -> None:
    progress = TrainingProgress(None)
    progress.complete_epoch()
    progress.loop_ended = True
    progress.evaluate(0.5)
    assert progress.epochs == 1


@pytest.mark.parametrize(("value", "metric"), [(1e300, MAX_NUMBER), (-1e300, -MAX_NUMBER), (math.nan, 0.5)])
def test_the_metric_stays_within_what_a_report_can_carry(value: float, metric: float) -> None:
    progress = TrainingProgress(None)
    progress.evaluate(0.5)
    progress.evaluate(value)
    assert (progress.metric, progress.diverged) == (metric, math.isnan(value))
