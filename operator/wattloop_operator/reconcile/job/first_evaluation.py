"""A target that the first evaluation of an untrained model meets: its direction may be the wrong one.

A loss with Maximize is at its target after one epoch, so the job trains next to nothing and reports
success. The decision keeps the stated direction: one evaluation cannot tell a wrong direction from an
easy target, and attempts under another direction would not compare with those before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.metric_words import HIGHER_IS_BETTER_PATTERN
from wattloop_operator.api.objective import Direction, Target
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.quantities import epochs_text, metric_text
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.job_observations import known_records

FIRST_EVALUATION = "TargetMetAtOnce"
HIGHER_IS_BETTER = re.compile(HIGHER_IS_BETTER_PATTERN)
OPPOSITE = {Direction.MAXIMIZE: Direction.MINIMIZE, Direction.MINIMIZE: Direction.MAXIMIZE}
# An evaluation after the first epoch counts only if it is beyond the threshold by this part of it: a training that is
# evaluated once, at its end, reaches its target at the first evaluation too.
FAR = 0.5


def first_evaluation_condition(snapshot: Snapshot) -> Iterator[tuple[str, bool, str, str]]:
    """That an attempt met the target at its first evaluation: the latest such one; nothing if there is none.

    Nothing either once an attempt missed the target at first and reached it later: training leads to it.
    """
    target = snapshot.job.spec.objective.target
    met = [each for each in snapshot.recurrences if _met_at_once(each, target)]
    latest = max(met, key=lambda each: each.order, default=None)
    if latest is None or latest.status.progress is None or latest.status.progress.curve is None:
        return
    if any(_was_trained_to(each, target) for each in known_records(snapshot)):
        return
    curve, threshold = latest.status.progress.curve, float(target.threshold)
    epochs, metric = curve.epochs[0], curve.metrics[0]
    is_far = _beyond(metric, target) >= FAR * abs(threshold)
    text = (
        f"recurrence {latest.spec.index} ({latest.metadata.name}): {target.metric} reached the target at its first "
        f"evaluation: after {epochs_text(epochs)} at {metric_text(metric)}, threshold "
        f"{target.threshold}, direction {target.direction.value}{_question(target)}"
    )
    yield FIRST_EVALUATION, True, "FarBeyondThreshold" if is_far else "FirstEvaluation", text


def _question(target: Target) -> str:
    """What the user may have meant; not the other direction where the metric's name leaves no doubt of this one."""
    change = "raise" if target.direction is Direction.MAXIMIZE else "lower"
    easy = f"the target asks for no training, so {change} the threshold"
    if target.direction is Direction.MAXIMIZE and HIGHER_IS_BETTER.search(target.metric):
        return f": {easy} if a better model is wanted"
    opposite = OPPOSITE[target.direction].value
    return f": is it {opposite}? If so, write spec.objective.target.direction: {opposite}; otherwise {easy}"


def _met_at_once(recurrence: TrainingRecurrence, target: Target) -> bool:
    """Whether an attempt trained a new model towards this target, and its first evaluation met it."""
    progress = recurrence.status.progress
    if progress is None or progress.curve is None or recurrence.spec.warm_start or recurrence.spec.target != target:
        return False
    beyond = _beyond(progress.curve.metrics[0], target)
    return beyond >= (0 if progress.curve.epochs[0] <= 1 else FAR * abs(float(target.threshold)))


def _was_trained_to(record: ObservationRecord, target: Target) -> bool:
    """Whether an attempt reached this target after a first evaluation that missed it."""
    if record.curve is None or record.target != target.run_target or record.result != Result.REACHED.value:
        return False
    return _beyond(record.curve.metrics[0], target) < 0


def _beyond(metric: float, target: Target) -> float:
    """How far a metric is beyond the threshold; negative if it misses the target."""
    margin = metric - float(target.threshold)
    return margin if target.direction is Direction.MAXIMIZE else -margin
