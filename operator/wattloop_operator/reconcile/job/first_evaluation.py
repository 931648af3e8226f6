"""A target that the first evaluation of an untrained model meets: its direction may be the wrong one.

A loss with Maximize is at its target after one epoch, so the job trains next to nothing and reports
success. The decision keeps the stated direction: one evaluation cannot tell a wrong direction from an
easy target, and attempts under another direction would not compare with those before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from wattloop_operator.api.meta import Condition
from wattloop_operator.api.metric_words import HIGHER_IS_BETTER_PATTERN
from wattloop_operator.api.objective import Direction, Target
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.quantities import metric_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.actions import EmitEvent

FIRST_EVALUATION = "TargetMetAtOnce"
HIGHER_IS_BETTER = re.compile(HIGHER_IS_BETTER_PATTERN)
OPPOSITE = {Direction.MAXIMIZE: Direction.MINIMIZE, Direction.MINIMIZE: Direction.MAXIMIZE}
# An evaluation after the first epoch counts only if it is beyond the threshold by this part of it: a training that is
# evaluated once, at its end, reaches its target at the first evaluation too.
FAR = 0.5


def first_evaluation_condition(snapshot: Snapshot) -> Iterator[tuple[str, bool, str, str]]:
    """That the latest attempt of a training met the target at its first evaluation; nothing if it did not."""
    target = snapshot.job.spec.objective.target
    evaluated = [each for each in snapshot.recurrences if _is_comparable(each, target)]
    latest = max(evaluated, key=lambda each: (each.spec.index, each.spec.attempt), default=None)
    if latest is None or latest.status.progress is None or latest.status.progress.curve is None:
        return
    curve = latest.status.progress.curve
    epochs, metric, threshold = curve.epochs[0], curve.metrics[0], float(target.threshold)
    beyond = metric - threshold if target.direction is Direction.MAXIMIZE else threshold - metric
    is_far = beyond >= FAR * abs(threshold)
    if beyond < 0 or (epochs > 1 and not is_far):
        return
    text = (
        f"recurrence {latest.spec.index} ({latest.metadata.name}): {target.metric} reached the target at its first "
        f"evaluation: after {epochs:g} epoch{'' if epochs == 1 else 's'} at {metric_text(metric)}, threshold "
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


def _is_comparable(recurrence: TrainingRecurrence, target: Target) -> bool:
    """Whether an attempt trained a new model towards this target, and was evaluated."""
    progress = recurrence.status.progress
    evaluated = progress is not None and progress.curve is not None
    return evaluated and not recurrence.spec.warm_start and recurrence.spec.target == target


def first_evaluation_event(before: Iterable[Condition], after: Iterable[Condition], name: str) -> EmitEvent | None:
    """The event for the first such attempt in a row; None otherwise.

    Args:
        before: The job's conditions as written before.
        after: Its current conditions.
        name: Namespace and name of the job.
    """
    if any(each.type == FIRST_EVALUATION for each in before):
        return None
    message = next((each.message for each in after if each.type == FIRST_EVALUATION), "")
    return EmitEvent(True, FIRST_EVALUATION, f"{name}: {message}") if message else None
